import type { Reporter, TestCase } from 'vitest/node';

/**
 * A reporter that says at the end which tests were skipped, and why: what they lack on this machine, or the longer run
 * they belong to. A failure it tells at once: the end of a long run may be hours away.
 */
export function createTestNotes(): Reporter {
  const notes: string[] = [];
  return {
    onTestCaseResult(test: TestCase) {
      const result = test.result();
      const name = `${test.module.relativeModuleId} > ${test.fullName}`;
      if (result.state === 'skipped' && result.note !== undefined) notes.push(`skipped: ${name}: ${result.note}\n`);
      if (result.state !== 'failed') return;
      for (const { message, diff, stack } of result.errors)
        process.stdout.write(`failed: ${name}: ${message}\n${diff ?? ''}\n${stack ?? ''}\n`);
    },
    onTestRunEnd() {
      process.stdout.write(notes.toSorted().join(''));
    },
  };
}
