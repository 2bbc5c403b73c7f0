import { readFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { expect, test } from 'vitest';
import { inLongForm, isLongRun } from '../helpers/chaos.ts';
import { inTurn } from '../helpers/in-turn.ts';
import { countCode, runPlanted } from '../helpers/planted.ts';

const root = path.resolve(import.meta.dirname, '..', '..');

/**
 * A defect: a text of a source file, and its replacement. simulator.test.ts shows that the same run passes without a
 * defect.
 */
interface Defect {
  readonly file: string;
  readonly from: string;
  readonly to: string;
  /** Seed of a scenario that found the defect, so that the run finds it early. */
  readonly seed?: number;
  /** The part of the short run to play. */
  readonly part?: 'export requests';
  /** Condition that its scenarios are made to meet. */
  readonly about?: 'copies';
}

/** The defects of the short form; each run plants one of them. */
const defects: Readonly<Record<string, Defect>> = {
  'messages are purged before the commit': {
    seed: 113,
    file: 'src/compact/position/stream-position.ts',
    from: 'if (fault === undefined) return true;',
    to: 'if (fault === undefined) { await reader.purgeBelow(batch.lastSequence); return true; }',
  },
  'a data file is committed without an fsync': {
    seed: 161,
    file: 'src/lake/files/data-file.ts',
    from: "await syncFile(file);\n  const numRecords = Number(row['count']);",
    to: "const numRecords = Number(row['count']);",
  },
  'a shortened stream is followed in silence': {
    seed: 494,
    file: 'src/compact/position/stream-position.ts',
    from: 'if (found === undefined) return epoch;',
    to: "if (found === undefined || found === 'shortened' || found === 'replaced') return epoch;",
  },
  'an export request ends before its end is written': {
    file: 'src/reports/jobs.ts',
    from: '(before = stored) && to(stored)',
    to: '(before = stored) && keep(to(stored))',
    part: 'export requests',
  },
};

/** Defects of the long form only: each takes a run of the simulator. */
const furtherDefects: Readonly<Record<string, Defect>> = {
  'the folder of the log is not synced after a commit': {
    seed: 129,
    file: 'src/runtime/files/durable-file.ts',
    from: "await syncFolder(path.dirname(file));\n  return 'created';",
    to: "return 'created';",
  },
  'a seal takes young files away before its commit': {
    file: 'src/lake/files/change.ts',
    from: 'await linkFiles(record, files);',
    to: 'await linkFiles(record, files); for (const { remove } of build(table.state(), table.lake()).actions) if (remove !== undefined) await tableStore(table.dir).remove([remove.path]);',
  },
  'a key stands for its method alone': {
    file: 'src/datasets/event-id.ts',
    from: "sha256([method, ...eventTexts].join('\\n'))",
    to: 'sha256(method)',
  },
  "another engine's commit is believed": {
    seed: 46,
    file: 'src/lake/log/log-tailer.ts',
    from: 'lake === undefined && changesTable(commit.actions)) continue;',
    to: 'false) continue;',
  },
  'the lake of another folder is rewritten': {
    about: 'copies',
    seed: 23,
    file: 'src/lake/files/change-record.ts',
    from: 'return stored;',
    to: 'return `../../original/lake/${stored}`;',
  },
  'a flush for which memory is short ends the compactor': {
    seed: 66,
    file: 'src/compact/flush-loop.ts',
    from: 'if (!passing) throw error;',
    to: "if (!passing || (isAppError(error) && error.code === 'memory')) throw error;",
  },
  'keys are forgotten over a restart': {
    file: 'src/lake/batch/idempotency-keys.ts',
    from: 'pruneFiles(snapshot.files, { receivedAt: bounds })',
    to: 'pruneFiles([], { receivedAt: bounds })',
  },
};

test.concurrent.for([...inTurn(Object.entries(defects), 4), ...Object.entries(isLongRun ? furtherDefects : {})])(
  '%s: the short run of the simulator finds this defect',
  { timeout: isLongRun ? 1_800_000 : 300_000 },
  async ([what, defect], { skip }) => {
    inLongForm(skip);
    expect(
      countCode(readFileSync(path.join(root, defect.file), 'utf8'), defect.from),
      `${defect.file} has changed: update the text of the defect`,
    ).toBe(1);
    const { code, output } = await runPlanted({
      ...defect,
      test: 'chaos/simulator.test.ts',
      name: `short run .*${defect.part ?? 'stream and lake'}`,
    });
    expect(code, output).not.toBe(0);
    const found = /ScenarioFailed: .*/.exec(output)?.[0];
    process.stderr.write(`planted: ${what}: ${found ?? 'not found'}\n`);
    expect(found, output).toBeDefined();
  },
);
