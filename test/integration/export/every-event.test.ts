import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventNames, selectors } from '../../../src/datasets/dictionaries.ts';
import { createExportArea, type Credentials, type RunningArea } from '../../helpers/export-area.ts';
import { importedEvents, oracleApps, toFixtureEvent } from '../../helpers/export-events.ts';
import { encodeSet, expectedRows, parseCsv, personNames, type OracleRequest } from '../../helpers/export-oracle.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import { inTurn, inWholeRun, isWhole } from '../../helpers/in-turn.ts';
import { writeLake } from '../../helpers/lake-fixture.ts';
import { expectedLoadedRows, loadedEvents, tableOf } from '../../helpers/loaded-oracle.ts';
import { loadableDatasets, makeLoadedRows, type LoadedRow } from '../../helpers/loaded-rows.ts';
import { addTestSegment } from '../../helpers/lists.ts';
import { openLoadArea } from '../../helpers/loads.ts';
import { specParameters } from '../../helpers/export-parameters.ts';
import { runHere } from '../../helpers/worker-here.ts';

/** Columns of a loaded row that only the service sets. */
const ownCells = ['tsInsert', 'eventId'];
const wide = { dateFrom: '2025-04-01', dateTo: '2025-08-01' };
const paymentsOnly = loadedEvents.filter((event) => tableOf(event) === 'payments');
const mediatedOnly = loadedEvents.filter((event) => tableOf(event) === 'adMonetization');

const askedEvents = inTurn(loadedEvents, 3);
/** A segment has the users of hits. */
const [segmented = 'hits'] = inTurn(['hits', 'installs'], 2);
const askedTables = new Set([...askedEvents, segmented, 'hits'].map(tableOf));
const loadedDatasets = isWhole ? loadableDatasets : loadableDatasets.filter(({ table }) => askedTables.has(table));

/** `make test` tests each common filter with one event, and others with every second; `make nightly` tests all. */
const askedOnceIn = isWhole ? { common: 1, own: 1 } : { common: loadedEvents.length, own: 2 };

type Filter = Readonly<Record<string, string | readonly string[]>>;

/** Filters of every event of loaded rows, with values that only some rows have. */
const commonFilters: readonly Filter[] = [
  { idApp: ['11', '13'] },
  { SDKKey: ['sdk-twelve'] },
  { idApp: ['11'], SDKKey: ['sdk-twelve'] },
  { idAccount: ['2'] },
  { idProject: ['4'] },
  { idAd: ['1', '2'] },
  { idCampaign: ['0', '3'] },
  { idPartner: ['1'] },
  { idCountry: ['188', '16'] },
  { rooted: '0' },
  { rooted: '1' },
  { timezone: 'Asia/Tokyo', dateFrom: '2025-05-10', dateTo: '2025-05-20' },
  { tsFrom: '1747000000', tsTo: '1748000000' },
];

/** A filter on an id of a person or device, a different one for each event, with values of two rows. */
function personFilter(event: string, rows: readonly LoadedRow[]): Filter {
  const ids = [...personNames, 'idProfile', 'idDevice'];
  const name = ids[loadedEvents.indexOf(event) % ids.length] ?? '';
  const field = name === 'advertisingId' ? 'gaid' : name;
  const given = rows.flatMap((row) => (row[field] ?? '') as string).filter((id) => id !== '');
  return { [name]: given.slice(0, 2) };
}

function ownFilters(event: string): Filter[] {
  return [
    ...(paymentsOnly.includes(event) ? [{ isVerified: '1' }, { idPurchaseType: '2' }] : []),
    ...(mediatedOnly.includes(event) ? [{ idAdMediator: '0' }, { idAdMediator: '3' }] : []),
  ];
}

function encode(request: OracleRequest): string {
  return Object.entries(request)
    .flatMap(([name, value]) => {
      if (typeof value === 'string') return [`${name}=${encodeURIComponent(value)}`];
      return name === 'eventName'
        ? (value ?? []).map((item) => `eventName[]=${encodeURIComponent(item)}`)
        : [`${name}=${encodeSet(value ?? [])}`];
    })
    .join('&');
}

/** The sorted rows, each cell under its selector. */
function toRecords([header = [], ...rows]: readonly (readonly string[])[]): readonly Readonly<
  Record<string, string>
>[] {
  return rows
    .map((row) => ({
      key: JSON.stringify(row),
      cells: Object.fromEntries(header.map((name, at) => [name, row[at] ?? ''])),
    }))
    .toSorted((a, b) => (a.key < b.key ? -1 : 1))
    .map(({ cells }) => cells);
}

/** Expects the same rows, in any order. */
function expectRows(found: readonly (readonly string[])[], expected: readonly (readonly string[])[], why = ''): void {
  expect(found[0], why).toEqual(expected[0]);
  expect(toRecords(found), why).toEqual(toRecords(expected));
}

describe('every event of the dictionary', () => {
  const area = createExportArea(temporaryFolder());
  const loaded = new Map<string, readonly LoadedRow[]>();
  const outcomes: unknown[] = [];
  let segment = new Set<string>();
  let running: RunningArea;
  let user: Credentials;
  const eventsWithRows = new Set<string>();
  const selectorsWithValues = new Set<string>();
  const parametersThatMatter = new Set<string>(['event', 'selectors']);

  async function exportRows(request: OracleRequest): Promise<string[][]> {
    const [header, ...rows] = parseCsv((await running.export(user, encode(request))).join(''));
    if (rows.length > 0) eventsWithRows.add(request.event);
    for (const row of rows)
      for (const [index, cell] of row.entries()) if (cell !== '') selectorsWithValues.add(header?.[index] ?? '');
    return [header ?? [], ...rows];
  }

  /** Exports with a filter, and records which parameters change the result. */
  async function exportFiltered(request: OracleRequest, all: readonly string[][]): Promise<string[][]> {
    const rows = await exportRows(request);
    if (rows.length !== all.length) for (const name of Object.keys(request)) parametersThatMatter.add(name);
    return rows;
  }

  beforeAll(async () => {
    for (const app of oracleApps) await area.addApp(app);
    user = await area.addUser({});
    await writeLake(area.tableDir, [importedEvents.map(toFixtureEvent)]);
    for (const [index, dataset] of loadableDatasets.entries()) {
      if (!loadedDatasets.includes(dataset)) continue;
      const rows = makeLoadedRows(dataset, 60, index + 1);
      const loads = await openLoadArea(area.dataDir, dataset.table);
      const file = loads.write(`${dataset.table}.ndjson`, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
      outcomes.push(await loads.load(file, {}, { apps: oracleApps }));
      loaded.set(dataset.table, rows);
    }
    const users = (loaded.get('hits') ?? []).map((row) => row['customUserId'] as string | undefined);
    segment = new Set(users.filter((id) => id !== undefined && !/[\r\n]/.test(id)).slice(0, 12) as string[]);
    await addTestSegment(area.segmentsDir, { idAccount: 1, idSegment: 5, kind: 'custom' }, [...segment]);
    running = await area.start({ runAttempt: runHere, maxExports: 1000 });
  }, 120_000);
  afterAll(() => running.stop());

  it('Every row of every dataset is loaded', () => {
    expect(outcomes).toEqual(
      loadedDatasets.map(() => expect.objectContaining({ rows: 60, stored: 60, failed: 0 }) as unknown),
    );
  });

  it.each(askedEvents)(
    'Loaded rows are exported by %s unchanged, with every selector and every filter',
    async (event) => {
      const rows = loaded.get(tableOf(event)) ?? [];
      const known = [...selectors.keys()].filter((name) => !ownCells.includes(name));
      const whole = await exportRows({ event, selectors: [...known, 'eventId', 'tsInsert'], ...wide });
      const all = whole.map((cells) => cells.slice(0, known.length));
      expectRows(all, expectedLoadedRows({ event, selectors: known, ...wide }, rows));
      const ids = whole.slice(1).map((cells) => cells[known.length]);
      expect(new Set(ids).size, 'each row has a unique id').toBe(all.length - 1);
      const turn = loadedEvents.indexOf(event);
      const common = commonFilters.filter((_, index) => (index + turn) % askedOnceIn.common === 0);
      const own = ownFilters(event).filter((_, index) => (index + turn) % askedOnceIn.own === 0);
      for (const filter of [...common, ...own, personFilter(event, rows)]) {
        const request = {
          event,
          selectors: ['tsEvent', 'idApp', 'idCampaign'],
          ...('tsFrom' in filter ? {} : wide),
          ...filter,
        };
        const filtered = await exportFiltered(request, all);
        expectRows(filtered, expectedLoadedRows(request, rows), JSON.stringify(filter));
      }
    },
  );

  it.each(isWhole ? ['hits', 'installs'] : [segmented])(
    'A segment keeps the rows of %s whose user is in it',
    async (event) => {
      const request = { event, selectors: ['tsEvent', 'customUserId'], ...wide };
      const all = await exportRows(request);
      const ofSegment = (loaded.get(event) ?? []).filter((row) => segment.has(String(row['customUserId'])));
      const rows = await exportFiltered({ ...request, idSegment: '5' }, all);
      expectRows(rows, expectedLoadedRows(request, ofSegment));
      expect(rows.length).toBeGreaterThan(1);
    },
  );

  it.each(
    inTurn(
      eventNames.filter((event) => !loadedEvents.includes(event)),
      3,
    ),
  )('Imported rows are exported by %s as they were imported, with every selector', async (event) => {
    const known = [...selectors.keys()];
    const request = { event, selectors: known, ...wide };
    const rows = await exportRows(request);
    expectRows(rows, expectedRows(request, importedEvents));
    expect(rows.length, event).toBeGreaterThan(1);
  });

  it('The parameters of names and of availability select imported events', async () => {
    const base = { event: 'customEvents', selectors: ['eventId'], ...wide };
    const all = await exportRows(base);
    const [name] = importedEvents.flatMap(({ fields }) => (fields['customEventName'] as string | undefined) ?? []);
    const available = String(Math.floor((importedEvents[200]?.available ?? 0) + 1));
    for (const filter of [
      { eventName: [name ?? ''] },
      { eventName: [name ?? ''], eventNameInvert: '1' },
      { availabilityTsFrom: available },
      { availabilityTsTo: available },
    ]) {
      const rows = await exportFiltered({ ...base, ...filter }, all);
      expectRows(rows, expectedRows({ ...base, ...filter }, importedEvents));
      expect(rows.length).toBeLessThan(all.length);
    }
  });

  it('Every event has rows, every selector has a value somewhere, and every parameter changes a result', ({ skip }) => {
    inWholeRun(skip);
    expect([...eventsWithRows].toSorted()).toEqual(eventNames);
    expect(eventsWithRows.size).toBe(30);
    expect([...selectors.keys()].filter((name) => !selectorsWithValues.has(name))).toEqual([]);
    expect(selectorsWithValues.size).toBeGreaterThanOrEqual(151);
    expect(specParameters.filter((name) => !parametersThatMatter.has(name))).toEqual([]);
    expect(specParameters).toHaveLength(24);
  });
});
