import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { estimateLinesBytes, statusCommand } from '../../../src/cli/status.ts';
import { dataPaths } from '../../../src/config.ts';
import { openLake } from '../../../src/lake/lake.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { findProcessStart } from '../../../src/runtime/processes/procfs.ts';
import { writeServiceState } from '../../../src/runtime/processes/service-state.ts';
import { renderStatus } from '../../../src/cli/status-table.ts';
import { testFolder } from '../../helpers/folder.ts';
import { runCommandHere } from '../../helpers/run-command.ts';

async function runStatus(dataDir: string) {
  const answers: unknown[] = [];
  const notes: string[] = [];
  const keep = (line: unknown): void => void answers.push(line);
  const never = new AbortController().signal;
  const code = await runCommandHere(statusCommand, ['--data', dataDir], {
    environment: { TRIBUTARY_LOGLEVEL: 'debug' },
    entry: '',
    printResult: keep,
    print: keep,
    printMessage: (line) => void notes.push(line),
    stop: never,
    force: never,
  });
  return { code, answers, notes };
}

it('The status of a service whose folder was removed names that folder and no consequences, and names a misspelled setting', async () => {
  const dataDir = path.join(testFolder(), 'data');
  const { run, lake } = dataPaths(dataDir);
  mkdirSync(dataDir);
  const at = '2024-05-01T10:00:00.000Z';
  writeServiceState(run, {
    pid: process.pid,
    processStart: findProcessStart(process.pid),
    folders: { [lake]: '1:1' },
    startedAt: at,
    writtenAt: at,
    s2s: undefined,
    api: undefined,
    natsUrl: 'nats://u:p@127.0.0.1:1',
    processes: [{ name: 'compact', state: 'running', pid: 1, restarts: 0, lastError: undefined }],
    facts: {},
    silentMs: {},
  });
  const { code, answers, notes } = await runStatus(dataDir);
  expect(notes).toEqual(['tributary: unknown setting TRIBUTARY_LOGLEVEL; did you mean TRIBUTARY_LOG_LEVEL?']);
  expect(code).toBe(1);
  const message = `the folder ${lake} was moved, removed or replaced while the service ran`;
  expect(answers).toMatchObject([{ running: true, problems: [{ code: 'data_folder_replaced', message }] }]);
  expect(answers).toMatchObject([{ stream: undefined, lake: undefined }]);
});

it('The status names an erasure until its old versions are deleted, and not for files that are replaced afterwards', async () => {
  const dataDir = path.join(testFolder(), 'data');
  const clock = createClock(0);
  const { lake } = dataPaths(dataDir);
  const table = await openLake(lake, { clock, crashPoint: noCrashPoint, retentionMs: 1 });
  const replacing = {
    path: '_rewritten/1.parquet',
    partitionValues: {},
    size: 1,
    modificationTime: 1,
    dataChange: false,
    tags: { replaces: 'kind=login/date=2026-01-31/1.parquet' },
  };
  await table.commit(() => ({ cause: 'schema', actions: [{ add: replacing }] }));
  for (const [forgetBefore, erasure] of [
    [1, { finishesAt: '1970-01-01T00:00:00.001Z', filesToReplace: 1 }],
    [0, undefined],
  ] as const) {
    await table.commit(() => ({ cause: 'erase', actions: [], erasedApps: [], forgetBefore, forgetAtMs: 1 }));
    const [answer] = (await runStatus(dataDir)).answers as { readonly lake: Readonly<Record<string, unknown>> }[];
    expect(answer?.lake['erasure']).toEqual(erasure);
    expect(answer?.lake['filesToReplace']).toBe(erasure === undefined ? 1 : undefined);
  }
});

const published = (bytes: number, storedBytes: number) => ({ published: { bytes, storedBytes } });

it('The size of the lines in the stream is estimated by the compression of all import processes, and unknown before their first message', () => {
  const facts = { 'ingest-1': published(3000, 1000), 'ingest-2': published(1000, 600), compact: { published: 1 } };
  expect(estimateLinesBytes([{ facts }], 800)).toBe(2000);
  expect(estimateLinesBytes([{ facts: { ingest: published(0, 0), compact: {} } }], 800)).toBeUndefined();
  expect(estimateLinesBytes([], 800)).toBeUndefined();
});

it('A terminal shows the status as a table of at most twelve lines, and each problem with its action', () => {
  const fine = {
    problems: [],
    warnings: [],
    services: [
      {
        pid: 4711,
        startedAt: '2026-03-01T12:00:00.000Z',
        s2s: 'http://127.0.0.1:8080',
        api: 'http://127.0.0.1:8081',
        processes: [
          { name: 'compact', state: 'running', pid: 1, restarts: 1, lastError: undefined },
          { name: 'export', state: 'waiting', pid: 2, restarts: 3, lastError: 'ended with SIGKILL' },
        ],
        facts: { compact: { watermark: '2026-03-01T12:00:05.000Z' } },
      },
    ],
    hosts: [
      { id: 'a', isAlive: true },
      { id: 'b', isAlive: false },
    ],
    stream: { messages: 12, bytes: 2048, maxBytes: 4096, lagMessages: 3 },
    lake: {
      version: 9,
      files: 4,
      youngFiles: 1,
      bytes: 1024,
      rows: 1_234_567,
      totals: { failed: 1, repeats: 2, erased: 0 },
    },
    exports: { finished: 2, failed: 1 },
  } as const;
  const table = renderStatus(fine, Date.parse('2026-03-01T12:00:25.000Z'));
  expect(table.length).toBeLessThanOrEqual(12);
  expect(table.slice(1)).toEqual([
    'import     http://127.0.0.1:8080',
    'export     http://127.0.0.1:8081, console http://127.0.0.1:8081/console/',
    'processes  1 running, export waiting, 4 restarts',
    'hosts      2, silent: b',
    'stream     12 messages, 2.0 KiB of 4.0 KiB, 3 not in the lake yet',
    expect.stringMatching(/^freshness {2}complete until .* \(20 s ago\)$/),
    'lake       1,234,567 rows, 4 files (1 young), 1.0 KiB, version 9',
    'events     1 failed, 2 duplicates, 0 erased',
    'exports    2 finished, 1 failed',
    'problems   none; warnings: none',
  ]);
  const problem = { code: 'lake_unreadable', message: 'cannot read the lake', action: 'Check the disk.' } as const;
  const broken = renderStatus({ ...fine, services: [], lake: undefined, problems: [problem] }, 0);
  expect(broken.slice(-3)).toEqual([
    'problems  1; warnings: none',
    'problem lake_unreadable: cannot read the lake',
    '  Check the disk.',
  ]);
  expect(broken[0]).toBe("service   not running; start it with 'tributary start'");
});
