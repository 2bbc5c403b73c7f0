import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { DuckDBInstance, type DuckDBConnection } from '@duckdb/node-api';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { cataloguePaths } from '../../../src/lake/catalogue/catalogue-files.ts';
import { readCatalogue, type CatalogueParameter } from '../../../src/lake/catalogue/read-catalogue.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { findNames } from '../../../src/runtime/files/folder-names.ts';
import { describeEvents, typeOf, type OracleParameter, type SentEvent } from '../../helpers/catalogue-oracle.ts';
import { testFolder } from '../../helpers/folder.ts';
import { inWholeRun, oneTestIn } from '../../helpers/in-turn.ts';
import { eventLine, startTestCompact, type TestCompactOptions } from '../../helpers/lake.ts';
import { createMemoryStream, type MemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(2));

const toLine = ({ idApp, name, params, time, user }: SentEvent): Record<string, unknown> =>
  eventLine({
    kind: 'custom_event',
    id_app: idApp,
    event_time: time,
    custom_user_id: user,
    custom_event_name: name,
    custom_event_params: params,
  });

/** Reports whether all sealed files are in the catalogue. */
async function isWhole(lakeDir: string, idApp: number, events: number): Promise<boolean> {
  const { files } = await readSnapshot(path.join(lakeDir, 'events'));
  if (files.length === 0 || files.some((file) => file.young)) return false;
  const { customEvents, missingFiles, more } = await readCatalogue(lakeDir, idApp);
  const sum = customEvents.reduce((total, event) => total + event.events, more.events);
  return missingFiles === 0 && sum === events;
}

/** Runs a compactor until the events are sealed and in the catalogue. */
async function sealAll(
  folder: string,
  stream: MemoryStream,
  sent: readonly SentEvent[],
  options: TestCompactOptions = {},
): Promise<string> {
  const lakeDir = path.join(folder, 'lake');
  const compactor = await startTestCompact(folder, stream, { sealAgeMs: 10, ...options });
  const ofApps = new Map<number, number>();
  for (const { idApp } of sent) ofApps.set(idApp, (ofApps.get(idApp) ?? 0) + 1);
  await waitFor('in the catalogue', async () => {
    for (const [idApp, events] of ofApps) if (!(await isWhole(lakeDir, idApp, events).catch(() => false))) return false;
    return true;
  });
  await compactor.stop();
  return lakeDir;
}

function publish(stream: MemoryStream, sent: readonly SentEvent[]): void {
  for (let from = 0; from < sent.length; from += 500) stream.publish(sent.slice(from, from + 500).map(toLine));
}

/** Compares a parameter with the oracle's; the number of values is approximate. */
function expectParameter(found: CatalogueParameter | undefined, expected: OracleParameter): void {
  expect({
    type: found?.type,
    seen: found?.seen,
    types: Object.fromEntries(Object.entries(found?.types ?? {}).filter(([, count]) => count > 0)),
    firstSeen: found?.firstSeen,
    lastSeen: found?.lastSeen,
  }).toEqual({
    type: expected.type,
    seen: expected.seen,
    types: expected.types,
    firstSeen: expected.firstSeen,
    lastSeen: expected.lastSeen,
  });
  const { size } = expected.values;
  expect(Math.abs((found?.distinctValues ?? 0) - size)).toBeLessThanOrEqual(Math.max(1, size / 4));
  for (const example of found?.examples ?? []) expect(expected.values.get(example)?.size).toBeGreaterThan(1);
}

async function expectCatalogue(lakeDir: string, sent: readonly SentEvent[], idApp: number): Promise<void> {
  const expected = describeEvents(sent, idApp);
  const { customEvents } = await readCatalogue(lakeDir, idApp);
  expect(new Set(customEvents.map(({ customEventName }) => customEventName))).toEqual(new Set(expected.keys()));
  for (const [name, event] of expected) {
    const [found] = (await readCatalogue(lakeDir, idApp, name)).customEvents;
    expect({ events: found?.events, sampledEvents: found?.sampledEvents, days: found?.days }).toEqual({
      events: event.events,
      sampledEvents: event.events,
      days: event.days,
    });
    expect([found?.firstSeen, found?.lastSeen]).toEqual([event.firstSeen, event.lastSeen]);
    expect(new Set(found?.parameters.map((parameter) => parameter.name))).toEqual(new Set(event.parameters.keys()));
    for (const [parameter, about] of event.parameters)
      expectParameter(
        found?.parameters.find((one) => one.name === parameter),
        about,
      );
  }
}

/** Opens an analyst's engine that has run the two texts. */
async function openViews(lakeDir: string): Promise<DuckDBConnection> {
  const instance = await DuckDBInstance.create(':memory:', { autoinstall_known_extensions: 'false' });
  onTestFinished(() => instance.closeSync());
  const connection = await instance.connect();
  for (const name of ['snapshot.sql', 'views.sql']) {
    const statements = await connection.extractStatements(await readFile(path.join(lakeDir, name), 'utf8'));
    for (let index = 0; index < statements.count; index += 1) await (await statements.prepare(index)).run();
  }
  return connection;
}

const noon = Math.floor(Date.UTC(2024, 4, 1, 12) / 1000);
const hostile = [
  '',
  'level',
  'Level',
  'LEVEL',
  '"',
  "'",
  "';DROP TABLE events;--",
  '$1',
  'a b',
  '\n.exit',
  '\u0000',
  '\uFEFFmark',
  '\u202Eright',
  'event_id',
  'kind',
  'Id_App',
  'custom_event_name',
  'tributary',
  'Event_Time',
  'custom_event_params',
  '%',
  '{}',
  '../..',
  'CON',
  'кириллица',
  '🙂',
  ' ',
  '\\',
  '`',
  '/*',
  ')',
  'app_1',
  '__proto__',
  'ß',
  'İ',
];
const values = [
  '1',
  '-7',
  '1.5',
  '2.25e3',
  'true',
  'FALSE',
  '2024-02-29',
  '2023-02-29',
  '2024-05-01T10:00:00Z',
  '2024-05-01 10:00:00',
  'x',
  '0x1',
  '١',
  '9'.repeat(19),
  '1e5',
  "it's",
  ' ',
];

/** Creates events with every hostile name for an event and for a parameter. */
function hostileEvents(): SentEvent[] {
  return hostile.flatMap((name, index) =>
    [0, 1, 2].map((turn) => ({
      idApp: 1 + (index % 2),
      name,
      params: Object.fromEntries(
        hostile.map((parameter, place) => [parameter, values[(place + turn) % values.length] ?? '']),
      ),
      time: noon + 86_400 * turn + index,
      user: `u${turn}`,
    })),
  );
}

const typedParams = (index: number): Record<string, string> => ({
  level: String(index),
  price: index % 2 === 0 ? '1' : '0.5',
  won: index % 2 === 0 ? 'true' : 'False',
  day: '2024-02-29',
  at: index % 2 === 0 ? '2024-05-01T10:00:00Z' : '2024-05-01 12:00:00+02:00',
  odd: index === 0 ? '1.5' : '3',
  ratio: index === 0 ? '1e-7' : index === 1 ? 'NaN' : String(Math.random() ** 3 + 1e-6),
  id: index === 0 ? String(2 ** 64) : `1${'0'.repeat(14)}${index}`,
  name: `n${index}`,
});

describe('catalogue of parameters', () => {
  it('Hostile names and values are reported exactly as an oracle reports them', async () => {
    const sent = hostileEvents();
    const stream = createMemoryStream();
    publish(stream, sent);
    const lakeDir = await sealAll(testFolder(), stream, sent);
    await expectCatalogue(lakeDir, sent, 1);
    await expectCatalogue(lakeDir, sent, 2);
    expect((await readCatalogue(lakeDir, 3)).customEvents).toEqual([]);
  });

  it('Before the first seal views.sql exists without a view', async () => {
    const folder = testFolder();
    const compactor = await startTestCompact(folder, createMemoryStream());
    await compactor.stop();
    const connection = await openViews(path.join(folder, 'lake'));
    const found = await connection.runAndReadAll(
      "SELECT count(*)::INTEGER AS n FROM duckdb_functions() WHERE schema_name LIKE 'app_%'",
    );
    expect(found.getRowObjectsJson()).toEqual([{ n: 0 }]);
  });

  it('The file views.sql has each parameter of such events as a column, with the values that were sent', async () => {
    const sent = hostileEvents();
    const stream = createMemoryStream();
    publish(stream, sent);
    const lakeDir = await sealAll(testFolder(), stream, sent);
    const connection = await openViews(lakeDir);
    const macros = (
      await connection.runAndReadAll(
        "SELECT schema_name, function_name FROM duckdb_functions() WHERE schema_name LIKE 'app_%' ORDER BY ALL",
      )
    ).getRowObjectsJson();
    expect(macros).toHaveLength(hostile.length);
    const rows: unknown[] = [];
    for (const { schema_name: schema, function_name: name } of macros) {
      const from = `${schema as string}."${(name as string).replaceAll('"', '""')}"()`;
      rows.push(
        ...(await connection.runAndReadAll(`SELECT to_json(t)::VARCHAR AS row FROM ${from} t`)).getRowObjectsJson(),
      );
    }
    expect(rows).toHaveLength(sent.length);
  });

  it('Columns of views.sql have the types of their values, and values of other types are NULL and named', async () => {
    const sent = Array.from({ length: 200 }, (_, index) => ({
      idApp: 1,
      name: 'level complete',
      params: typedParams(index),
      time: noon + index,
      user: `u${index}`,
    }));
    const stream = createMemoryStream();
    publish(stream, sent);
    const lakeDir = await sealAll(testFolder(), stream, sent);
    const [found] = (await readCatalogue(lakeDir, 1, 'level complete')).customEvents;
    expect(found?.parameters.filter(({ untyped }) => untyped > 0)).toMatchObject([{ name: 'ratio', untyped: 1 }]);
    expect(await readFile(cataloguePaths(lakeDir).viewsSql, 'utf8')).toContain(
      `"ratio" /* NULL: 1 of 200 sampled values */`,
    );
    const connection = await openViews(lakeDir);
    const [row] = (
      await connection.runAndReadAll(`SELECT min(ratio) AS ratio, count(ratio)::INT AS ratios, typeof(any_value(id)) AS ids, max(id)::VARCHAR AS id,
        list(untyped_params::VARCHAR) FILTER (untyped_params IS NOT NULL) AS untyped, typeof(level) AS level, sum(level)::INT AS levels, sum(price)::DOUBLE AS price, count(*) FILTER (won)::INT AS won,
        typeof(any_value(day)) AS day, min("at") = max("at") AS same, typeof(any_value(odd)) AS odd, count(DISTINCT name)::INT AS names
        FROM app_1."level complete"() GROUP BY ALL`)
    ).getRowObjectsJson();
    expect(row).toMatchObject({
      level: 'BIGINT',
      levels: 19_900,
      price: 150,
      won: 100,
      day: 'DATE',
      same: true,
      odd: 'DOUBLE',
      names: 200,
      ratio: 1e-7,
      ratios: 199,
      ids: 'DECIMAL(38,0)',
      id: '18446744073709552000',
      untyped: ['{ratio=NaN}'],
    });
  });

  it('The catalogue does not grow with a million names: those beyond the bound are counted', async () => {
    const sent = Array.from({ length: 3000 }, (_, index) => ({
      idApp: 1,
      name: index < 600 ? `e${index}` : 'wide',
      params: index < 600 ? {} : { [`p${index}`]: '1', all: '1' },
      time: noon + index,
      user: 'u',
    }));
    const stream = createMemoryStream();
    publish(stream, sent);
    const lakeDir = await sealAll(testFolder(), stream, sent);
    const { customEvents, more } = await readCatalogue(lakeDir, 1);
    expect([customEvents.length, more]).toEqual([
      500,
      { names: 101, events: 101, days: [{ date: '2024-05-01', events: 101 }] },
    ]);
    const [wide] = (await readCatalogue(lakeDir, 1, 'wide')).customEvents;
    expect([wide?.events, wide?.parameters.length, wide?.parameters[0]?.name]).toEqual([2400, 100, 'all']);
    expect(wide?.moreParameters).toBeGreaterThan(1000);
  });

  it('Lost or damaged parts of the catalogue are recreated from the sealed files', async ({ skip }) => {
    inWholeRun(skip);
    const folder = testFolder();
    const stream = createMemoryStream();
    const sent = hostileEvents();
    publish(stream, sent);
    const lakeDir = await sealAll(folder, stream, sent);
    const { packs, folder: own } = cataloguePaths(lakeDir);
    for (const name of await findNames(packs)) await writeFile(path.join(packs, name), 'damaged');
    await sealAll(folder, stream, sent);
    await writeFile(path.join(own, 'catalogue.json'), '{}');
    const compactor = await startTestCompact(folder, stream, { sealAgeMs: 10 });
    await waitFor('made again', async () =>
      isWhole(lakeDir, 1, sent.filter(({ idApp }) => idApp === 1).length).catch(() => false),
    );
    await compactor.stop();
    await expectCatalogue(lakeDir, sent, 1);
    expect(await findNames(packs)).not.toEqual([]);
    const [fold = ''] = (await findNames(own)).filter((name) => name.endsWith('.parquet'));
    const bytes = await readFile(path.join(own, fold));
    await writeFile(path.join(own, fold), bytes.fill(0xff, 8, Math.floor(bytes.length / 2)));
    await expect(readCatalogue(lakeDir, 1)).rejects.toThrow('the catalogue of parameters is damaged');
    await sealAll(folder, stream, sent);
    await expectCatalogue(lakeDir, sent, 1);
  });

  it.skipIf(process.env['TRIBUTARY_SAMPLE_EVENTS'] === undefined)(
    'It says of a sample of real events what an oracle says (TRIBUTARY_SAMPLE_EVENTS)',
    async ({ skip }) => {
      inWholeRun(skip);
      const bytes = await readFile(process.env['TRIBUTARY_SAMPLE_EVENTS'] ?? '');
      const sent = gunzipSync(bytes)
        .toString()
        .split('\n')
        .filter((line) => line !== '')
        .map((line): SentEvent => {
          const event = JSON.parse(line);
          return {
            idApp: 1,
            name: event.customEventName,
            params: event.customEventParams,
            time: event.eventTimestamp,
            user: event.customUserId,
          };
        });
      const stream = createMemoryStream();
      publish(stream, sent);
      const lakeDir = await sealAll(testFolder(), stream, sent);
      await expectCatalogue(lakeDir, sent, 1);
      const connection = await openViews(lakeDir);
      for (const [name, { parameters }] of describeEvents(sent, 1))
        for (const [parameter, { type }] of parameters) {
          if (!['integer', 'long', 'decimal'].includes(type)) continue;
          const numbers = sent.filter(
            (event) =>
              event.name === name && ['integer', 'long', 'decimal'].includes(typeOf(event.params[parameter] ?? '')),
          );
          const [row] = (
            await connection.runAndReadAll(
              `SELECT count("${parameter}")::INT AS n, coalesce(sum("${parameter}"), 0)::DOUBLE AS sum FROM app_1."${name}"()`,
            )
          ).getRowObjectsJson();
          const sum = numbers.reduce((total, { params }) => total + Number(params[parameter]), 0);
          expect(row?.['n']).toBe(numbers.length);
          expect(Number(row?.['sum'])).toBeCloseTo(sum, 3);
        }
    },
    120_000,
  );
});
