import type { Reporter, TestCase, TestModule } from 'vitest/node';

const END_LENGTH = 600;

/**
 * Creates a reporter that lists skipped tests at the end with the reason: a missing requirement, or a longer run that
 * includes them. It prints a failure at once, because a long run may take hours, and repeats it briefly at the end of
 * the output.
 */
export function createTestNotes(): Reporter {
  const skipped: string[] = [];
  const failed: string[] = [];
  const fail = (name: string, errors: readonly Failure[]): void => {
    for (const { message, diff, stack } of errors) {
      process.stdout.write(`failed: ${name}: ${message}\n${diff ?? ''}\n${stack ?? ''}\n`);
      const place = stack?.split('\n').find((line) => line.includes('.ts:')) ?? '';
      failed.push(`failed: ${name}: ${`${message} ${place.trim()} ${diff ?? ''}`.slice(0, END_LENGTH)}\n`);
    }
  };
  return {
    onTestCaseResult(test: TestCase) {
      const result = test.result();
      const name = `${test.module.relativeModuleId} > ${test.fullName}`;
      if (result.state === 'skipped' && result.note !== undefined) skipped.push(`skipped: ${name}: ${result.note}\n`);
      if (result.state === 'failed') fail(name, result.errors);
    },
    onTestModuleEnd(module: TestModule) {
      fail(module.relativeModuleId, module.errors());
    },
    onTestRunEnd(_modules, unhandled) {
      fail('outside of all tests', unhandled);
      process.stdout.write([...skipped.toSorted(), ...failed].join(''));
    },
  };
}

interface Failure {
  readonly message: string;
  readonly diff?: string | undefined;
  readonly stack?: string | undefined;
}
