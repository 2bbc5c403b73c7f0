import { appendFileSync, mkdirSync, renameSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { formatLogLine, logCommand, matchesLog } from '../../../src/cli/log.ts';
import { dataPaths } from '../../../src/config.ts';
import { caughtUp, followFile, splitLines } from '../../../src/runtime/files/followed-lines.ts';
import { findProcessStart } from '../../../src/runtime/processes/procfs.ts';
import { writeServiceState } from '../../../src/runtime/processes/service-state.ts';
import { testFolder } from '../../helpers/folder.ts';
import { runCommandHere } from '../../helpers/run-command.ts';
import { waitFor } from '../../helpers/wait.ts';

const lineOf = (fields: object): string =>
  JSON.stringify({
    level: 'info',
    time: '2026-03-01T12:00:05.000Z',
    pid: 1,
    role: 'compact',
    process: 'compact',
    ...fields,
  });
const refused = lineOf({
  level: 'info',
  role: 'ingest',
  process: 'ingest-1',
  idApp: '7',
  requests: 3,
  msg: 'request refused',
});
const failed = lineOf({ level: 'error', error: 'disk full', msg: 'flush failed, will retry' });
const crash = 'FATAL ERROR: heap out of memory';
const none = { level: undefined, role: undefined, app: undefined, text: undefined };

async function runLog(words: readonly string[], input?: string, screen?: { readonly columns: number }) {
  const lines: string[] = [];
  const never = new AbortController().signal;
  await runCommandHere(logCommand, words, {
    environment: {},
    entry: '',
    printResult: () => undefined,
    print: (line) => void lines.push(line),
    printMessage: () => undefined,
    stop: never,
    force: never,
    ...(input === undefined
      ? {}
      : {
          input: async function* () {
            yield Buffer.from(input);
          },
        }),
    ...(screen === undefined ? {} : { screen }),
  });
  return lines;
}

describe('the lines of the log', () => {
  it('A line matches by level, role or process, app and text, and the trace of a crash matches every level', () => {
    const matching = (filter: Partial<Parameters<typeof matchesLog>[1]>): string[] =>
      [refused, failed, crash].filter((line) => matchesLog(line, { ...none, ...filter }));
    expect(matching({})).toEqual([refused, failed, crash]);
    expect(matching({ level: 'warn' })).toEqual([failed, crash]);
    expect(matching({ role: 'ingest' })).toEqual([refused]);
    expect(matching({ role: 'ingest-1' })).toEqual([refused]);
    expect(matching({ role: 'export' })).toEqual([]);
    expect(matching({ app: 7 })).toEqual([refused]);
    expect(matching({ text: 'DISK' })).toEqual([failed]);
    expect(matching({ text: 'heap', level: 'fatal' })).toEqual([crash]);
  });

  it('A line is laid out with time, level, process, message and fields, and control characters are escaped', () => {
    expect(formatLogLine(refused)).toMatch(
      /^2026-03-01 \S+ \S+ {2}INFO {3}ingest-1 {4}request refused {2}idApp 7, requests 3$/,
    );
    expect(formatLogLine('\u001b[31mred')).toBe('\\u{1b}[31mred');
  });
});

describe('tributary log', () => {
  it('Standard input and a file give the matching lines, only the last ones if asked, and laid out on a terminal', async () => {
    const text = [failed, refused, failed, refused].join('\n');
    expect(await runLog(['-', '--role', 'compact'], text)).toEqual([failed, failed]);
    const file = path.join(testFolder(), 'some.log');
    writeFileSync(file, text);
    expect(await runLog([file, '-n', '1', '--level', 'warn'])).toEqual([failed]);
    expect(await runLog([file, '-n', '1'], undefined, { columns: 80 })).toEqual([formatLogLine(refused)]);
    expect(await runLog([file, '-n', '1', '--json'], undefined, { columns: 80 })).toEqual([refused]);
  });

  it('Without a service, the log is service.log of the data folder; without one the error names the journal', async () => {
    const dataDir = path.join(testFolder(), 'data');
    mkdirSync(path.join(dataDir, 'run'), { recursive: true });
    await expect(runLog(['--data', dataDir])).rejects.toMatchObject({
      code: 'not_found',
      hint: expect.stringContaining('journalctl -u tributary -o cat | tributary log -') as unknown,
    });
    await expect(runLog([path.join(dataDir, 'none.log')])).rejects.toMatchObject({ code: 'not_found' });
    writeFileSync(path.join(dataDir, 'service.log'), `${failed}\n`);
    expect(await runLog(['--data', dataDir])).toEqual([failed]);
  });

  it('A running service that logs into no file is named, and the log of an earlier start is not shown', async () => {
    const dataDir = path.join(testFolder(), 'data');
    const at = '2024-05-01T10:00:00.000Z';
    mkdirSync(dataDir);
    writeFileSync(path.join(dataDir, 'service.log'), failed);
    writeServiceState(dataPaths(dataDir).run, {
      pid: process.pid,
      processStart: findProcessStart(process.pid),
      startedAt: at,
      writtenAt: at,
      s2s: undefined,
      api: undefined,
      processes: [],
      facts: {},
      silentMs: {},
    });
    await expect(runLog(['--data', dataDir])).rejects.toThrow(/^the running service \(pid \d+\) writes its log to/);
  });

  it('A followed log continues with appended lines, with a file that replaces it, and after a truncation', async () => {
    const file = path.join(testFolder(), 'followed.log');
    writeFileSync(file, 'one\ntw');
    const stopping = new AbortController();
    const seen: string[] = [];
    const following = (async () => {
      for await (const line of splitLines(followFile(file, stopping.signal)))
        if (line === caughtUp || line !== '') seen.push(line === caughtUp ? '-' : line);
    })();
    const lines = (): string[] => seen.filter((line) => line !== '-');
    await waitFor('the first lines are read', () => seen.includes('-'));
    expect(seen.slice(0, 2)).toEqual(['one', '-']);
    appendFileSync(file, 'o\nthree\n');
    await waitFor('the appended lines are read', () => lines().length === 3);
    appendFileSync(file, 'last of the old file\n');
    renameSync(file, `${file}.1`);
    writeFileSync(file, 'first of the new file\n');
    await waitFor('the new file is read', () => lines().length === 5);
    truncateSync(file);
    await waitFor('the truncation is seen', () => seen.slice(-2).join('') === '--');
    appendFileSync(file, 'four\n');
    await waitFor('the truncated file is read', () => lines().length === 6);
    stopping.abort();
    await following;
    expect(lines()).toEqual(['one', 'two', 'three', 'last of the old file', 'first of the new file', 'four']);
  });
});
