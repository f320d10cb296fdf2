import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Answer } from '../client/client.ts'
import { cliConfig } from '../config.ts'
import { AppError, denied, notFound, unavailable } from '../lib/errors.ts'
import { runCli } from './cli.ts'
import { COMMANDS } from './commands.ts'
import { exitCode } from './exit.ts'
import { readFields } from './fields.ts'
import { readFlags } from './flags.ts'
import { fieldOf, formatAnswer, formatKeys } from './format.ts'
import { OWN_HELP, PROCESS_HELP } from './help.ts'
import type { Io } from './io.ts'

let dir: string
beforeAll(async () => {
  dir = await mkdtemp(path.join(tmpdir(), 'kt-cli-'))
  await writeFile(path.join(dir, 'password'), 'p=w\n\n')
  await writeFile(path.join(dir, 'body.json'), '{"a":1,"list":["x"]}')
})
afterAll(() => rm(dir, { recursive: true, force: true }))

function recorder(): Io & { outText: string; errText: string } {
  const io = {
    outText: '',
    errText: '',
    isTerminal: false,
    out(text: string) {
      io.outText += text
    },
    err(text: string) {
      io.errText += text
    },
    readAll: async () => '',
    askSecret: async () => '',
  }
  return io
}

describe('fields', () => {
  const stdin = async () => '{"from":"stdin"}\n'
  test.each([
    [[], {}],
    [['a=1', 'b=', 'c=x=y'], { a: '1', b: '', c: 'x=y' }],
    [['a=1', 'a=2', 'a=3'], { a: ['1', '2', '3'] }],
    [['a=-'], { a: '{"from":"stdin"}' }],
    [['-', 'b=1'], { from: 'stdin', b: '1' }],
    [['a=\\@x', 'b=\\-', 'c=\\n'], { a: '@x', b: '-', c: '\\n' }],
  ])('%j', async (words, fields) => {
    expect(await readFields(words, stdin)).toEqual(fields)
  })

  test('from files', async () => {
    expect(await readFields([`p=@${dir}/password`, `@${dir}/body.json`], stdin)).toEqual({
      p: 'p=w\n',
      a: 1,
      list: ['x'],
    })
  })

  test.each([[['a']], [['=1']], [['-', 'a=-']], [['a=@/nowhere']], [['@/etc/hostname']]])(
    '%j is refused',
    async (words) => {
      await expect(readFields(words, stdin)).rejects.toThrow(AppError)
    },
  )
})

describe('flags', () => {
  test('stand anywhere, with one dash or two', () => {
    const flags = readFlags('login', ['-method=ldap', 'username=bob', '-format', 'json', '--no-store', '-', 'k=-'])
    expect(flags).toMatchObject({ method: 'ldap', format: 'json', noStore: true, words: ['username=bob', '-', 'k=-'] })
  })

  test.each([
    ['read', ['--nope'], /--nope/],
    ['read', ['--format', 'xml'], /--format must be/],
    ['read', ['--method', 'ldap'], /flag of login/],
    ['read', ['--field'], /--field/],
  ])('%s %j is refused', (command, args, message) => {
    expect(() => readFlags(command, args)).toThrow(message)
  })
})

describe('the environment', () => {
  test.each([
    [{}, undefined],
    [{ BAO_LDAP_PASSWORD: 'b' }, 'b'],
    [{ BAO_LDAP_PASSWORD: 'b', VAULT_LDAP_PASSWORD: 'v' }, 'v'],
    [{ BAO_LDAP_PASSWORD: 'b', VAULT_LDAP_PASSWORD: 'v', SERVICE_LDAP_PASSWORD: 's' }, 's'],
    [{ SERVICE_LDAP_PASSWORD: '', VAULT_LDAP_PASSWORD: 'v' }, 'v'],
  ])('password of %j', (env, want) => {
    expect(cliConfig(env).ldapPassword).toBe(want)
  })

  test('says whether any certificate is taken, in plain words', () => {
    expect(cliConfig({ KEYTURN_INSECURE: 'true' }).insecure).toBe(true)
    expect(cliConfig({ KEYTURN_INSECURE: '' }).insecure).toBe(false)
    expect(() => cliConfig({ KEYTURN_INSECURE: '1' })).toThrow('KEYTURN_INSECURE must be true or false')
  })

  test('says where the server is and where the token is kept', () => {
    expect(cliConfig({ HOME: '/h' })).toMatchObject({
      address: 'https://127.0.0.1:8200',
      tokenFile: '/h/.keyturn-token',
    })
    expect(cliConfig({ KEYTURN_ADDR: 'unix:/s', KEYTURN_TOKEN: 't' })).toMatchObject({ address: 'unix:/s', token: 't' })
  })
})

describe('format', () => {
  const answer: Answer = {
    requestId: 'r',
    data: { password: 'p"w', ttl: 5, names: ['a', 'b'], deep: { x: null }, none: null, bad: 'a\u001b[31m\nb\u009b' },
    auth: undefined,
    warnings: ['w'],
    keys: [],
    lease: { id: 'l/1', durationMs: 60_000, renewable: true },
  }

  test('a table is aligned and safe for a terminal', () => {
    expect(formatAnswer(answer, 'table')).toBe(
      [
        'Key              Value',
        '---              -----',
        'lease_id         l/1',
        'lease_duration   60s',
        'lease_renewable  true',
        'password         p"w',
        'ttl              5',
        'names            a, b',
        'deep             {"x":null}',
        'none             -',
        'bad              a\\u001b[31m\\nb\\u009b',
        '',
      ].join('\n'),
    )
    expect(formatKeys(['a', 'b/'], 'table')).toBe('Keys\n----\na\nb/\n')
  })

  test('JSON and YAML are for programs', () => {
    const whole = {
      request_id: 'r',
      lease_id: 'l/1',
      lease_duration: 60,
      renewable: true,
      data: answer.data,
      auth: null,
      warnings: ['w'],
    }
    expect(JSON.parse(formatAnswer(answer, 'json'))).toEqual(whole)
    expect(formatAnswer({ ...answer, requestId: '', data: { sealed: false } }, 'yaml')).toBe('sealed: false\n')
    expect(formatKeys(['a'], 'json')).toBe('[\n  "a"\n]\n')
  })

  test('a field is as it is', () => {
    expect(fieldOf(answer, 'password')).toBe('p"w')
    expect(fieldOf(answer, 'names')).toBe('["a","b"]')
    expect(() => fieldOf(answer, 'nope')).toThrow(/no field "nope"/)
  })
})

test.each([
  [denied(), 3],
  [notFound('x'), 4],
  [unavailable('x'), 5],
  [new AppError('invalid', 'x'), 2],
  [new Error('x'), 1],
])('%s ends with %i', (error, code) => {
  expect(exitCode(error)).toBe(code)
})

describe('runCli', () => {
  test('help shows every command, and an example of each', async () => {
    const io = recorder()
    expect(await runCli([], {}, '1.2.3', io)).toBe(0)
    for (const { name, example } of [...COMMANDS, ...OWN_HELP, ...PROCESS_HELP]) {
      expect(io.outText).toContain(`  ${name} `)
      const one = recorder()
      expect(await runCli(['help', name], {}, '1.2.3', one)).toBe(0)
      expect(one.outText).toContain(`Example:\n  ${example}`)
      expect(example).toMatch(new RegExp(`^keyturn ${name}\\b`))
    }
    const flag = recorder()
    expect(await runCli(['read', '--help'], {}, '1.2.3', flag)).toBe(0)
    expect(flag.outText).toContain('Usage: keyturn read')
  })

  test('help of a process shows its flags, and what they are when they are not given', async () => {
    const io = recorder()
    expect(await runCli(['help', 'server'], {}, '1.2.3', io)).toBe(0)
    expect(io.outText).toMatch(/--listen HOST:PORT,… +where .* \(127\.0\.0\.1:8200\)\n/)
    expect(io.outText).toMatch(/--proxy-protocol +trusted/)
    expect(io.outText).toContain('--data is KEYTURN_DATA')
  })

  test('version', async () => {
    const io = recorder()
    expect(await runCli(['version'], {}, '1.2.3', io)).toBe(0)
    expect(io.outText).toBe('keyturn 1.2.3\n')
  })

  test.each([
    [['nope'], 2, /no command "nope"/],
    [['help', 'nope'], 2, /no command "nope"/],
    [['read'], 2, /PATH is missing/],
    [['list', 'a', 'b'], 2, /too many/],
    [['backup'], 2, /FILE is missing/],
    [['read', 'a', '--address', 'nowhere'], 2, /must begin with/],
    [['read', 'a', '--address', 'http://127.0.0.1:1'], 5, /cannot reach/],
    [['read', 'a', '--ca-cert', '/nowhere'], 2, /cannot read the CA/],
    [['read', 'a', '--ca-cert', '/etc/hostname'], 2, /hostname holds no certificate/],
    [['read', 'a', '--token', 'two\nlines', '--address', 'http://127.0.0.1:1'], 2, /cannot be sent: .*token/],
    [['list', 'a', '--field', 'b'], 2, /--field is not for list/],
    [['login', '--method', 'magic'], 2, /--method must be/],
    [['login', '--address', 'http://127.0.0.1:1'], 2, /name is missing/],
    [['login', 'bob', 'colour=red'], 2, /not "colour"/],
  ])('%j ends with %i', async (args, code, text) => {
    const io = recorder()
    expect(await runCli(args, { HOME: dir }, '1.2.3', io)).toBe(code)
    expect(io.errText).toMatch(text)
    expect(io.outText).toBe('')
  })
})
