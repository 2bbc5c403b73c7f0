import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { testFolder } from '../helpers/folder.ts';
import { inWholeRun } from '../helpers/in-turn.ts';
import { isAlive, listTree, signalProcess } from '../helpers/processes.ts';
import { waitFor, within } from '../helpers/wait.ts';

const entry = path.resolve(import.meta.dirname, '../../dist/main.js');
const sample = process.env['TRIBUTARY_SAMPLE_EVENTS'] ?? '';
const hasSample = existsSync(sample);
if (!hasSample)
  process.stderr.write('demo.test.ts: TRIBUTARY_SAMPLE_EVENTS names no file; the demo is not run on it\n');

interface DemoRun {
  readonly code: number | null;
  readonly output: string;
  readonly errors: string;
  /** Leftovers in the demo's folder for temporary files. */
  readonly leftovers: readonly string[];
}

/** Shorter than the test timeout, so that the failure has a name. */
const demoMs = 55_000;

/** Runs the demo with its own folder for temporary files; `onLine` gets each line and the demo's process id. */
async function runDemo(
  words: readonly string[],
  onLine: (line: string, pid: number) => void = () => undefined,
): Promise<DemoRun> {
  const temporary = path.join(testFolder(), 'tmp');
  mkdirSync(temporary);
  const demo = spawn(process.execPath, [entry, 'demo', ...words], {
    env: { ...process.env, TMPDIR: temporary },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [output, errors] = ['', ''];
  demo.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
    for (const line of text.split('\n')) onLine(line, demo.pid ?? 0);
  });
  demo.stderr.setEncoding('utf8').on('data', (text: string) => void (errors += text));
  const [code] = (await within('the demo has ended', once(demo, 'close'), demoMs)) as [number | null];
  return { code, output, errors, leftovers: readdirSync(temporary) };
}

/** Counts a file's events by name, without code of the demo. */
function countNames(lines: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const line of lines) {
    const name = (JSON.parse(line) as { customEventName: string }).customEventName;
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return counts;
}

/** The rows of the demo's table: name, then the counts in the lake, of what was sent, and in the file. */
function tableOf(output: string): Map<string, number[]> {
  const rows = output.matchAll(/^ {2}(\S.*?) +([\d,]+) +[\d,]+ +([\d,]+) +([\d,]+)$/gm);
  return new Map(
    [...rows].map(([, name = '', ...numbers]) => [name, numbers.map((text) => Number(text.replaceAll(',', '')))]),
  );
}

describe('the demo', () => {
  it('The demo shows generated sessions from import to download, with matching counts, and leaves nothing behind', async () => {
    const { code, output, leftovers } = await runDemo(['--count', '2000', '--seed', '5']);
    expect(output).toContain('In progress, ');
    expect(output).toContain('Success!');
    expect(output).toContain('eventId,eventName,tsEvent,customUserId,params.name,params.value');
    for (const what of [
      'events sent and acknowledged',
      'distinct event ids in the lake',
      'rows in the exported file',
    ]) {
      expect(output).toMatch(new RegExp(`^${what} +2,000 `, 'm'));
    }
    expect(code).toBe(0);
    expect(leftovers).toEqual([]);
  });

  it('The demo counts a file’s event names as the file spells them', async ({ skip }) => {
    inWholeRun(skip);
    const names = ['plain', 'with "quotes"', 'with, comma', "it's", 'naïve ☃', '= 1+1', 'plain'];
    const lines = names.map((name, index) =>
      JSON.stringify({
        customEventName: name,
        customUserId: `u${index}`,
        customEventParams: { 'a\nb': 'c"d', n: String(index) },
      }),
    );
    const file = path.join(testFolder(), 'events.ndjson');
    writeFileSync(file, `${lines.join('\n')}\n`);
    const { code, output } = await runDemo(['--events', file]);
    const counts = countNames(lines);
    expect(tableOf(output)).toEqual(new Map([...counts].map(([name, count]) => [name, [count, count, count]])));
    expect(code).toBe(0);
  });

  it.runIf(hasSample)(
    'The demo imports every event of the sample, and finds each name as often as the file has it',
    async ({ skip }) => {
      inWholeRun(skip);
      const lines = gunzipSync(readFileSync(sample)).toString('utf8').trim().split('\n');
      const { code, output } = await runDemo(['--events', sample]);
      expect(tableOf(output)).toEqual(
        new Map([...countNames(lines)].map(([name, count]) => [name, [count, count, count]])),
      );
      expect(output).toMatch(/^distinct event ids in the lake +10,000 /m);
      expect(output).toMatch(/^distinct event ids in the file +10,000 /m);
      expect(code).toBe(0);
    },
  );

  it('The demo names the event that the service rejects, exits 1 and leaves nothing behind', async ({ skip }) => {
    inWholeRun(skip);
    const file = path.join(testFolder(), 'events.ndjson');
    writeFileSync(file, '{"customEventName":"","customUserId":"u"}\n');
    const { code, errors, leftovers } = await runDemo(['--events', file]);
    expect(errors).toMatch(/^tributary: the service rejected a batch: 400 .*Bad Request.*"customUserId":"u"/);
    expect(code).toBe(1);
    expect(leftovers).toEqual([]);
  });

  it('The demo reports a missing file before it starts any process', async () => {
    const { code, output, errors } = await runDemo(['--events', path.join(testFolder(), 'none.ndjson')]);
    expect(errors).toMatch(/^tributary: cannot read the events: .*none\.ndjson/);
    expect(output).toBe('');
    expect(code).toBe(1);
  });

  it('The demo stops everything when it is interrupted', async ({ skip }) => {
    inWholeRun(skip);
    const tree = new Set<number>();
    const { code, errors, leftovers } = await runDemo(['--count', '500000'], (line, pid) => {
      if (!line.startsWith('import') || tree.size > 0) return;
      for (const child of listTree(pid)) tree.add(child);
      signalProcess(pid, 'SIGINT');
    });
    expect(errors).toMatch(/^tributary: the demo was interrupted/);
    expect(code).toBe(1);
    expect(leftovers).toEqual([]);
    expect(tree.size).toBeGreaterThan(3);
    await waitFor('every process of the demo has exited', () => ![...tree].some(isAlive));
  });
});
