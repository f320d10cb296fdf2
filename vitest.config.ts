import { defineConfig } from 'vitest/config'

// A condition that comes true is seen at once; how long one that does not is waited for must not depend on how busy the machine is.
const expect = { poll: { timeout: 20_000 } }

// Three projects: unit tests touch no network, server tests use real directories and stores, e2e tests a real Kubernetes API server.
// Written inline, they inherit nothing.
export default defineConfig({
  test: {
    projects: [
      { test: { name: 'unit', include: ['src/**/*.test.ts'], testTimeout: 10_000, expect } },
      {
        test: {
          name: 'servers',
          include: ['test/servers/**/*.test.ts'],
          testTimeout: 60_000,
          hookTimeout: 60_000,
          expect,
          // They wait for servers more than they compute.
          maxWorkers: 3,
        },
      },
      {
        test: {
          name: 'e2e',
          include: ['test/e2e/**/*.test.ts'],
          testTimeout: 120_000,
          hookTimeout: 180_000,
          expect,
          fileParallelism: false,
          globalSetup: ['test/support/cluster-global.ts'],
        },
      },
    ],
  },
})
