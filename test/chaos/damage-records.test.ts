import { createHash } from 'node:crypto';
import { cpSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { text as textOf } from 'node:stream/consumers';
import { pino } from 'pino';
import { beforeAll, expect, test } from 'vitest';
import { addApp, addAppToken } from '../../src/access/apps.ts';
import { addUser } from '../../src/access/users.ts';
import { openAccessReader } from '../../src/access/store.ts';
import { createRandom } from '../../src/demo/random.ts';
import { openReceiptKeys, receiptKeysPath, rotateReceiptKey } from '../../src/receipts/receipt-keys.ts';
import { openSigningKeys, rotateSigningKey, signingKeysPath } from '../../src/reports/signed-links.ts';
import { openReportStore } from '../../src/reports/store.ts';
import { createVerifiedFiles, isVerificationError } from '../../src/reports/verified-files.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { isAppError } from '../../src/runtime/errors.ts';
import { chaosFigure, chaosSeed } from '../helpers/chaos.ts';
import { recordDamage, runDamages } from '../helpers/damage.ts';
import { temporaryFolder } from '../helpers/folder.ts';

/**
 * The service's records: access, keys, export requests, and their files. Each is read by the code that the service
 * uses.
 */

const offsets = chaosFigure('TRIBUTARY_TEST_DAMAGES', { short: 4, long: 200 });
const seed = chaosSeed();
const folder = temporaryFolder();
const original = path.join(folder, 'original');
const clock = createClock(0);

interface Reading {
  /** The content that was read, complete enough to show any difference. */
  readonly answer: unknown;
  /** Number of errors logged meanwhile. */
  readonly errors: number;
}

const accessPaths = (data: string) => ({ access: path.join(data, 'access.json'), keys: path.join(data, 'keys') });
let tokens: readonly string[];

function countErrors(): { logger: pino.Logger; errors: () => number } {
  let errors = 0;
  return { logger: pino({ level: 'error' }, { write: () => void (errors += 1) }), errors: () => errors };
}

async function readAccess(data: string): Promise<Reading> {
  const { logger, errors } = countErrors();
  const reader = await openAccessReader(accessPaths(data), logger);
  const view = reader.current();
  reader.close();
  const apps = [1, 2, 3].map((idApp) => [
    view.findApp(idApp),
    tokens.map((token) => view.findAppByToken(idApp, token)?.idApp),
  ]);
  return {
    answer: [
      apps,
      ['1', '2'].map((idUser) => view.findUser(idUser)),
      [1, 2].map((idAccount) => view.appsOfAccount(idAccount)),
    ],
    errors: errors(),
  };
}

async function readKeys(data: string): Promise<Reading> {
  const { logger, errors } = countErrors();
  const keys = await openSigningKeys(path.join(data, 'keys'), clock, logger);
  const { kid, secret } = keys.current();
  keys.close();
  return { answer: [kid, secret.toString('hex')], errors: errors() };
}

async function readReceiptKeys(data: string): Promise<Reading> {
  const { logger, errors } = countErrors();
  const keys = await openReceiptKeys(path.join(data, 'keys'), clock, logger);
  keys.close();
  return { answer: [keys.known(), keys.current()?.key], errors: errors() };
}

/** Reads the requests, and the id of the next one. Unreadable requests must be reported. */
async function readReports(data: string): Promise<Reading> {
  const { logger, errors } = countErrors();
  const store = await openReportStore(clock, logger, { reportsDir: path.join(data, 'reports'), linkTtlSeconds: 3600 });
  const jobs = store.list().toSorted((a, b) => a.id - b.id);
  const next = await store.create({ idUser: '1', idAccount: 1, event: 'customEvents', request: {} });
  return { answer: [jobs, next.id], errors: errors() + store.damaged().length };
}

/** Reads the files of the requests as a download does. */
async function readReportFiles(data: string): Promise<Reading> {
  const { logger, errors } = countErrors();
  const store = await openReportStore(clock, logger, { reportsDir: path.join(data, 'reports'), linkTtlSeconds: 3600 });
  const files = createVerifiedFiles(store.objects, logger);
  const texts: (string | undefined)[] = [];
  for (const { id, files: parts = [] } of store.list()) {
    for (const file of parts) {
      const opened = await files.open({ job: { id }, file });
      if (isVerificationError(opened)) continue;
      texts.push(await textOf(opened.stream()));
    }
  }
  return { answer: texts, errors: errors() };
}

const reportName = '2.customEvents.csv';
const reportText = `eventName\n${Array.from({ length: 300 }, (_, row) => `name ${row}`).join('\n')}\n`;

beforeAll(async () => {
  const paths = accessPaths(original);
  const given = [
    await addApp(paths, { idApp: 1, platform: 'web', idAccount: 1 }, 0),
    await addApp(paths, { idApp: 2, platform: 'game', idAccount: 2, idProject: 7 }, 0),
    await addAppToken(paths, 1, 0),
  ];
  tokens = given.map(({ token }) => token);
  await addUser(paths, { name: 'ann', idAccount: 1, canExport: true });
  await addUser(paths, { name: 'bob', idAccount: 2, canExport: false, maxExports: 3 });
  const keys = await openSigningKeys(paths.keys, clock, countErrors().logger);
  keys.close();
  await rotateSigningKey(paths.keys, clock);
  await rotateReceiptKey(paths.keys, clock);
  await rotateReceiptKey(paths.keys, clock);
  const store = await openReportStore(clock, countErrors().logger, {
    reportsDir: path.join(original, 'reports'),
    linkTtlSeconds: 3600,
  });
  const request = { event: 'customEvents', selectors: ['eventName'], timezone: 'UTC', idApp: ['1'] };
  for (let n = 0; n < 5; n += 1)
    await store.create({ idUser: '1', idAccount: 1 + (n % 2), event: 'customEvents', request });
  const { folder: attempt } = await store.beginAttempt(2);
  writeFileSync(path.join(attempt, reportName), reportText);
  await store.end(
    2,
    {
      state: 'success',
      files: [
        {
          name: reportName,
          rows: 300,
          bytes: reportText.length,
          sha256: createHash('sha256').update(reportText).digest('hex'),
        },
      ],
    },
    attempt,
  );
  await store.end(3, { state: 'canceled' });
  await store.remove(5);
});

const kinds: Readonly<
  Record<
    string,
    { readonly file: (data: string, pick: number) => string; readonly read: (data: string) => Promise<Reading> }
  >
> = {
  'access.json': { file: (data) => path.join(data, 'access.json'), read: readAccess },
  'the key of the secrets': { file: (data) => path.join(data, 'keys', 'secrets.key'), read: readAccess },
  'the signing keys': { file: (data) => signingKeysPath(path.join(data, 'keys')), read: readKeys },
  'the keys of receipts': { file: (data) => receiptKeysPath(path.join(data, 'keys')), read: readReceiptKeys },
  'export requests': { file: (data, pick) => path.join(data, 'reports', String(pick), 'job.json'), read: readReports },
  'report files': { file: (data) => path.join(data, 'reports', '2', 'parts', reportName), read: readReportFiles },
  'the highest request id': { file: (data) => path.join(data, 'reports', 'highest-id'), read: readReports },
};

test.for(Object.entries(kinds))(
  'A damaged record leads to a right result or a reported error: %s',
  { timeout: 600_000 },
  async ([what, { file, read }]) => {
    const random = createRandom(seed);
    const whole = path.join(folder, 'whole');
    cpSync(original, whole, { recursive: true });
    const { answer: rightAnswer, errors: noErrors } = await read(whole);
    rmSync(whole, { recursive: true });
    const right = JSON.stringify(rightAnswer);
    expect(noErrors).toBe(0);
    const tally = await runDamages({
      original,
      copy: path.join(folder, 'copy'),
      listFiles: (copy) => [file(copy, random.integer(1, 4))],
      random,
      offsets,
      async judge(copy) {
        try {
          const { answer, errors } = await read(copy);
          if (errors > 0) return 'loud';
          return JSON.stringify(answer) === right ? 'right' : { silent: `read as ${JSON.stringify(answer)}` };
        } catch (error) {
          if (isAppError(error)) return 'loud';
          throw error;
        }
      },
    });
    recordDamage(`damage to records: ${what}`, tally, { seed, part: 'damage-records' });
    expect(tally.silentWrong).toEqual([]);
  },
);
