import process from 'node:process';
import { startVitest } from 'vitest/node';

/**
 * Runs tests on sources with a defect that is in no file: it is planted when the source is loaded. Argument: JSON {
 * file, from, to, test, name? }: a source file, the pattern of its text to replace, the replacement, the test file, and
 * a pattern of test titles. Exit code: that of the tests.
 */
const { file, from, to, test, name } = JSON.parse(process.argv[2]);

const plant = {
  name: 'planted-defect',
  enforce: 'pre',
  transform(code, id) {
    if (!id.endsWith(file)) return undefined;
    const pattern = new RegExp(from, 'g');
    if (code.match(pattern)?.length !== 1)
      throw new Error(`the text to replace does not occur exactly once in ${file}`);
    return code.replace(pattern, () => to);
  },
};

const options = {
  run: true,
  watch: false,
  config: 'test/vitest.config.ts',
  bail: 1,
  reporters: ['default'],
  ...(name === undefined ? {} : { testNamePattern: name }),
};
process.env['TRIBUTARY_TEST_PLANTED'] = '1';
const vitest = await startVitest('test', [test], options, { plugins: [plant] });
await vitest.close();
