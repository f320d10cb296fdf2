import { cpSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { startKeyturn } from '../support/keyturn.ts'

// What every released version left behind (test/upgrade/<version>/) is read by this one: stores open, resources stay valid.

const RELEASES = path.resolve(import.meta.dirname, '../upgrade')
const CRDS = path.resolve(import.meta.dirname, '../../crds')

describe.each(readdirSync(RELEASES))('from %s', (version) => {
  const kept = path.join(RELEASES, version)

  test('its store opens, and everything in it is as it was', async () => {
    const expected = JSON.parse(readFileSync(path.join(kept, 'expected.json'), 'utf8'))
    const work = mkdtempSync(path.join(tmpdir(), 'kt-upgrade-'))
    for (const file of ['keyturn.db', 'seal-key']) cpSync(path.join(kept, file), path.join(work, file))
    const keyturn = await startKeyturn({ work })
    try {
      const root = { token: expected.rootToken }
      const person = { token: expected.personToken }
      const cred = await keyturn.call('GET', 'ldap/static-cred/team/app', undefined, person)
      expect(cred.body.data).toMatchObject({
        username: 'static-1',
        password: expected.password,
        last_password: expected.lastPassword,
        last_service_rotation: expected.rotatedAt,
        rotation_period: 31_536_000,
      })
      const imported = await keyturn.call('GET', 'ldap/static-cred/imported', undefined, root)
      expect(imported.body.data).toMatchObject({ username: 'static-2', password: '' })
      expect((await keyturn.call('LIST', 'ldap/static-role', undefined, root)).body.data.keys).toEqual([
        'imported',
        'team/',
      ])
      expect((await keyturn.call('GET', 'ldap/config', undefined, root)).body.data.userattr).toBe('uid')
      expect((await keyturn.call('GET', 'auth/ldap/users/alice', undefined, root)).body.data).toEqual({
        policies: ['reader'],
        groups: 'engineers',
      })
      const self = await keyturn.call('GET', 'auth/token/lookup-self', undefined, person)
      expect(self.body.data).toMatchObject({ entity_id: expected.entityId, policies: ['default', 'reader'] })
      expect((await keyturn.call('GET', 'sys/mounts/other/tune', undefined, root)).body.data.max_lease_ttl).toBe(
        172_800,
      )
    } finally {
      await keyturn.stop()
    }
  })

  test.each(readdirSync(path.join(kept, 'crds')))('resources that %s admitted are admitted still', (file) => {
    const schemaOf = (folder: string) =>
      parse(readFileSync(path.join(folder, file), 'utf8')).spec.versions[0].schema.openAPIV3Schema
    expect(narrowed(schemaOf(path.join(kept, 'crds')), schemaOf(CRDS), '')).toEqual([])
  })
})

interface Schema {
  readonly type?: string
  readonly required?: readonly string[]
  readonly properties?: Readonly<Record<string, Schema>>
  readonly items?: Schema
  readonly enum?: readonly string[]
  readonly maxLength?: number
  readonly maxItems?: number
}

/** Where the new schema refuses what the old one admitted. */
function narrowed(old: Schema, now: Schema | undefined, at: string): string[] {
  if (!now) return [`${at} is gone`]
  const found: string[] = []
  if (old.type !== now.type) found.push(`${at} is ${now.type}, was ${old.type}`)
  for (const name of now.required ?? []) if (!old.required?.includes(name)) found.push(`${at}.${name} is required now`)
  for (const word of old.enum ?? [])
    if (now.enum && !now.enum.includes(word)) found.push(`${at} no longer takes ${word}`)
  for (const limit of ['maxLength', 'maxItems'] as const)
    if ((now[limit] ?? Number.POSITIVE_INFINITY) < (old[limit] ?? Number.POSITIVE_INFINITY))
      found.push(`${at}: ${limit} is smaller`)
  for (const [name, inner] of Object.entries(old.properties ?? {}))
    found.push(...narrowed(inner, now.properties?.[name], `${at}.${name}`))
  if (old.items) found.push(...narrowed(old.items, now.items, `${at}[]`))
  return found
}
