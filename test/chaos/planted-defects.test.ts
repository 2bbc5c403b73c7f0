import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';

const root = path.resolve(import.meta.dirname, '..', '..');

/** A defect: a text of a source file, and what stands in its place. `found`: how the simulator tells of it. */
interface Defect {
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

const defects: Readonly<Record<string, Defect>> = {
  'messages are purged before the commit': {
    file: 'src/compact/compact.ts',
    from: 'const flushed = await flushBatch(',
    to: 'await reader.purgeBelow(batch.lastSequence); const flushed = await flushBatch(',
  },
  'a data file is committed without an fsync': { file: 'src/lake/data-file.ts', from: 'await syncFile(file);', to: '' },
  'a shortened stream is followed in silence': {
    file: 'src/compact/follow.ts',
    from: "if (state.lastSequence < epoch.position) return 'shortened';",
    to: 'if (state.lastSequence < epoch.position) return undefined;',
  },
  'the folder of the log is not synced after a commit': { file: 'src/lake/table.ts', from: "await syncFolder(folder);\n  await crashPoint('commit-synced');", to: '' },
  'a seal takes young files away before its commit': {
    file: 'src/lake/intent.ts',
    from: "await crashPoint('renamed');",
    to: 'for (const { remove } of intent.change.actions) if (remove !== undefined) await removeFile(path.join(table.dir, remove.path));',
  },
  'keys are forgotten over a restart': { file: 'src/compact/dedupe.ts', from: 'fromMs: nowMs - dedupeWindowMs', to: 'fromMs: nowMs + dedupeWindowMs' },
};

/** Runs the short simulator in a process of its own; returns its exit code and what it printed. */
async function runPlanted(defect: Defect): Promise<{ readonly code: unknown; readonly output: string }> {
  const child = spawn(process.execPath, [path.join(root, 'test', 'simulator', 'planted-run.mjs'), JSON.stringify(defect)], {
    cwd: root,
    env: { ...process.env, TRIBUTARY_CHAOS: '', TRIBUTARY_TEST_SEED: '', TRIBUTARY_TEST_SIMULATOR_SEEDS: '', TRIBUTARY_TEST_SCENARIO: '', NO_COLOR: '1' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')]);
  return { code, output: `${stdout}${stderr}` };
}

test.concurrent.for(Object.entries(defects))('%s: the short simulator tells', { timeout: 180_000 }, async ([, defect], { expect: check }) => {
  check(readFileSync(path.join(root, defect.file), 'utf8').split(defect.from).length, `${defect.file} has moved on: plant the defect anew`).toBe(2);
  const { code, output } = await runPlanted(defect);
  check(code, output).not.toBe(0);
  check(/ScenarioFailed: .*/.exec(output)?.[0] ?? output).toContain('ScenarioFailed: ');
});

test('a replacement that changes nothing is not taken for a defect', async () => {
  const { code, output } = await runPlanted({ file: 'src/lake/data-file.ts', from: 'await syncFile(file);', to: 'await syncFile(file); ' });
  expect(code, output).toBe(0);
}, 180_000);
