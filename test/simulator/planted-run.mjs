import process from 'node:process';
import { startVitest } from 'vitest/node';

/**
 * Runs the short simulator on sources with a defect in them. Argument: a JSON of { file, from, to, part }: a text of a source file,
 * what stands in its place, and which part of the short run is played. Exit code: that of the tests.
 */
const { file, from, to, part = 'stream and lake' } = JSON.parse(process.argv[2]);

const plant = {
  name: 'planted-defect',
  enforce: 'pre',
  transform(code, id) {
    if (!id.endsWith(file)) return undefined;
    if (code.split(from).length !== 2) throw new Error(`the text to replace does not stand once in ${file}`);
    return code.replace(from, () => to);
  },
};

const vitest = await startVitest('test', ['chaos/simulator.test.ts'], { run: true, watch: false, config: 'test/vitest.config.ts', testNamePattern: `short run .*${part}`, reporters: ['default'] }, { plugins: [plant] });
await vitest.close();
