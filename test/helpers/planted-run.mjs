import process from 'node:process';
import { startVitest } from 'vitest/node';

/**
 * Runs tests on sources with a defect in them, which stands in no file: it is planted as the source is loaded.
 * Argument: a JSON of { file, from, to, test, name? }: the pattern of a text of a source file, what stands in its
 * place, the test file, and which of its tests. Exit code: that of the tests.
 */
const { file, from, to, test, name } = JSON.parse(process.argv[2]);

const plant = {
  name: 'planted-defect',
  enforce: 'pre',
  transform(code, id) {
    if (!id.endsWith(file)) return undefined;
    const pattern = new RegExp(from, 'g');
    if (code.match(pattern)?.length !== 1) throw new Error(`the text to replace does not stand once in ${file}`);
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
