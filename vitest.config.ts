import { defineConfig } from 'vitest/config'

// Three projects: unit tests touch no network, server tests use real directories and stores, e2e tests a real Kubernetes API server.
export default defineConfig({
  test: {
    projects: [
      { test: { name: 'unit', include: ['src/**/*.test.ts'], testTimeout: 10_000 } },
      {
        test: {
          name: 'servers',
          include: ['test/servers/**/*.test.ts'],
          testTimeout: 60_000,
          hookTimeout: 60_000,
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
          fileParallelism: false,
          globalSetup: ['test/support/cluster-global.ts'],
        },
      },
    ],
  },
})
