import type { Reporter, TestCase } from 'vitest/node';

/** A reporter that says at the end which tests were skipped, and why: what they lack on this machine, or the longer run they belong to. */
export function createSkipNotes(): Reporter {
  const notes: string[] = [];
  return {
    onTestCaseResult(test: TestCase) {
      const result = test.result();
      if (result.state === 'skipped' && result.note !== undefined) notes.push(`skipped: ${test.module.relativeModuleId} > ${test.fullName}: ${result.note}\n`);
    },
    onTestRunEnd() {
      process.stdout.write(notes.toSorted().join(''));
    },
  };
}
