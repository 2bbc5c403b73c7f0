import { defineConfig } from 'vitest/config';

/** Tests run against real servers and files, so they get time; two cores decide how many run side by side. */
export default defineConfig({
  test: {
    root: import.meta.dirname,
    include: ['{unit,integration,e2e,chaos}/**/*.test.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    pool: 'forks',
    maxWorkers: 2,
    setupFiles: [],
    reporters: ['default'],
  },
});
