import { execFile, spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openLakeReader } from '../../src/demo/demo-report.ts';
import { createRandom, type Random } from '../../src/demo/random.ts';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import { waitUntilWorkedOff } from '../helpers/accounting.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { inWholeRun, isWhole } from '../helpers/in-turn.ts';
import { addTestApp } from '../helpers/service-access.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { findProgram } from '../helpers/shell.ts';

const root = temporaryFolder();
const dataDir = path.join(root, 'data');
const clientsDir = path.join(packageRoot, 'clients');
const fixtures = path.join(packageRoot, 'test/fixtures/senders');
const maxLines = 150;

interface Language {
  readonly name: string;
  readonly tool: string;
  readonly file: string;
  /** Lines that are not counted: comments and imports. */
  readonly uncounted: RegExp;
  readonly isSlow: boolean;
  /** Builds the program in a folder; returns its command. */
  readonly build: (folder: string) => Promise<readonly [file: string, ...words: string[]]>;
}

const languages: readonly Language[] = [
  {
    name: 'python',
    tool: 'python3',
    file: 'python/tributary_sender.py',
    uncounted: /^\s*#|^import /,
    isSlow: false,
    async build(folder) {
      cpSync(path.join(clientsDir, 'python/tributary_sender.py'), path.join(folder, 'tributary_sender.py'));
      cpSync(path.join(fixtures, 'python/send.py'), path.join(folder, 'send.py'));
      return ['python3', '-u', path.join(folder, 'send.py')];
    },
  },
  {
    name: 'go',
    tool: 'go',
    file: 'go/sender.go',
    uncounted: /^\s*\/\/|^import |^\t"|^\)$/,
    isSlow: true,
    async build(folder) {
      cpSync(path.join(clientsDir, 'go'), folder, { recursive: true });
      cpSync(path.join(fixtures, 'go/main.go'), path.join(folder, 'send/main.go'));
      const file = path.join(folder, 'sender');
      await promisify(execFile)('go', ['build', '-o', file, './send'], { cwd: folder });
      return [file];
    },
  },
  {
    name: 'php',
    tool: 'php',
    file: 'php/TributarySender.php',
    uncounted: /^\s*(?:\/\/|\/?\*)/,
    isSlow: true,
    build: async () => ['php', path.join(fixtures, 'php/send.php'), path.join(clientsDir, 'php/TributarySender.php')],
  },
  {
    name: 'java',
    tool: 'javac',
    file: 'java/Sender.java',
    uncounted: /^\s*(?:\/\/|\/?\*)|^import /,
    isSlow: true,
    async build(folder) {
      const sources = [path.join(clientsDir, 'java/Sender.java'), path.join(fixtures, 'java/Send.java')];
      await promisify(execFile)('javac', ['-d', folder, ...sources]);
      return ['java', '-cp', folder, 'Send'];
    },
  },
];

/** Every fiftieth event is invalid. */
const isValid = (n: number): boolean => n % 50 !== 0;

/** Runs a program until it ends, or kills it after a number of accepted events. Returns its lines. */
async function runProgram([file, ...words]: readonly string[], killAfter: number): Promise<readonly string[]> {
  const child = spawn(file ?? '', words, { stdio: ['ignore', 'pipe', 'ignore'] });
  const lines: string[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    lines.push(line);
    if (lines.length === killAfter) child.kill('SIGKILL');
  }
  return lines;
}

/** Sends events with kills in between. Returns the accepted numbers, and those of which that is unknown. */
async function sendAll(command: readonly string[], words: readonly string[], last: number, random: Random) {
  const [accepted, doubtful]: [number[], number[]] = [[], []];
  for (let first = 1; first < last;) {
    const killAfter = last - first < 100 ? Number.POSITIVE_INFINITY : random.integer(40, 160);
    const lines = await runProgram([...command, ...words, String(first), String(last)], killAfter);
    const numbers = lines.map(Number).filter(Number.isInteger);
    accepted.push(...numbers);
    if (numbers.at(-1) === last - 1) break;
    const next = (numbers.at(-1) ?? first - 1) + 1;
    doubtful.push(next);
    first = next + 1;
  }
  // A kill, or a slow service, may have left events in the spool.
  expect((await runProgram([...command, ...words, '1', '1'], Number.POSITIVE_INFINITY)).at(-1)).toBe('stored');
  return { accepted, doubtful };
}

// The first build of the sender for Go compiles its standard library.
describe('the small senders', { timeout: 300_000 }, () => {
  let service: TestService;
  let token: string;

  beforeAll(async () => {
    token = await addTestApp(dataDir);
    service = await startTestService({ dataDir, settings: { TRIBUTARY_FLUSH_AGE_MS: '300' } });
  }, 120_000);
  afterAll(() => service.destroy());

  it.each(languages)('The sender for $name has at most 150 lines without comments and imports', (language) => {
    const lines = readFileSync(path.join(clientsDir, language.file), 'utf8').split('\n');
    expect(lines.filter((line) => line.trim() !== '' && !language.uncounted.test(line)).length).toBeLessThanOrEqual(
      maxLines,
    );
  });

  it.for(languages)(
    'Events that the sender for $name has accepted are stored once, also after kills of it and of the import',
    async ({ name, tool, isSlow, build }, { skip }) => {
      if (findProgram(tool) === undefined) skip(`no ${tool} on this machine`);
      if (isSlow) inWholeRun(skip);
      const folder = path.join(root, name);
      const spool = path.join(folder, 'spool');
      mkdirSync(spool, { recursive: true });
      const command = await build(folder);
      const last = isWhole ? 3000 : 500;
      const random = createRandom(Date.now() % 100_000);
      const sending = sendAll(command, [service.s2s, token, spool], last, random);
      if (isSlow) await service.kill9('ingest', random);
      const { accepted, doubtful } = await sending;
      await waitUntilWorkedOff(service);
      const reader = await openLakeReader(dataDir);
      const rows = await reader.query(
        `SELECT custom_event_params['n']::INTEGER AS n, count(*)::INTEGER AS times FROM custom_event WHERE custom_event_name = '${name}' GROUP BY ALL`,
      );
      reader.close();
      const stored = new Map(rows.map(({ n, times }) => [Number(n), Number(times)]));
      expect(accepted.filter((n) => isValid(n) && !stored.has(n))).toEqual([]);
      expect([...stored].filter(([, times]) => times !== 1)).toEqual([]);
      expect([...stored.keys()].filter((n) => !accepted.includes(n) && !doubtful.includes(n))).toEqual([]);
      const rejected = new Set(
        readFileSync(path.join(spool, 'rejected.ndjson'), 'utf8')
          .match(/(?<="n":\s?")\d+/g)
          ?.map(Number),
      );
      expect(accepted.filter((n) => !isValid(n) && !rejected.has(n))).toEqual([]);
      expect([...rejected].filter(isValid)).toEqual([]);
    },
  );

  it.for(languages)(
    'The sender for $name keeps events after answers of a proxy, rejects those that the service refuses, and sends the others',
    async ({ name, tool, isSlow, build }, { skip }) => {
      if (findProgram(tool) === undefined) skip(`no ${tool} on this machine`);
      if (isSlow) inWholeRun(skip);
      const folder = path.join(root, `${name}-proxy`);
      const spool = path.join(folder, 'spool');
      mkdirSync(spool, { recursive: true });
      // Left by a process whose sealing failed, with a torn line.
      writeFileSync(path.join(spool, 'customEvent.open'), '{"left":"1"}\n{"to');
      const command = await build(folder);
      const answers = [
        [502, '{"message":"bad gateway"}'],
        [404, '{"error":"Method not found"}'],
        [200, '{"message":"ok"}'],
      ] as const;
      const bodies: string[] = [];
      const server = createServer((request, response) => {
        let body = '';
        request.setEncoding('utf8').on('data', (text: string) => {
          body += text;
        });
        request.on('end', () => {
          const [status, answer] = answers[Math.min(bodies.push(body), answers.length) - 1] ?? answers[2];
          response.writeHead(status).end(answer);
        });
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
      const lines = await runProgram([...command, url, 'token', spool, '1', '3'], Number.POSITIVE_INFINITY);
      server.close();
      expect(lines).toEqual(['1', '2', 'stored']);
      expect(bodies[0]).toContain('"left":"1"');
      expect(bodies[1]).toBe(bodies[0]);
      const sent = [readFileSync(path.join(spool, 'rejected.ndjson'), 'utf8'), ...bodies.slice(2)].join('\n');
      expect(sent.match(/"left"|"n":\s?"\d+"/g)?.toSorted()).toHaveLength(3);
      expect(sent).not.toContain('{"to');
      expect(existsSync(path.join(spool, 'customEvent.open'))).toBe(false);
      expect(readdirSync(spool).filter((file) => file.endsWith('.batch'))).toEqual([]);
    },
  );
});
