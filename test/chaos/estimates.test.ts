import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createCalendar, type Calendar } from '../../src/export/api/calendar.ts';
import { isApiError } from '../../src/export/api/envelope.ts';
import { parseExportRequest } from '../../src/export/api/parse-request.ts';
import { selectApps, type ExportApp, type ExportSpec } from '../../src/export/jobs/export-spec.ts';
import type { EstimateRange, Estimate, Preview, ReadPlan } from '../../src/export/jobs/worker-messages.ts';
import { findPlanLists, tableDirOf } from '../../src/export/jobs/read-plan.ts';
import { toReportVersion, resolveReadVersion } from '../../src/export/worker/read-version.ts';
import { chooseFormat } from '../../src/export/worker/formats/format.ts';
import { estimate as estimateResult, runDryRunJob } from '../../src/export/worker/dry-run/run-dry-run.ts';
import { isEmptyResult, planQuery } from '../../src/export/worker/query.ts';
import { openQueryEngine, type QueryEngine } from '../../src/export/worker/query-engine.ts';
import { createReadFiles, prepare, usePaths } from '../../src/export/worker/read-files.ts';
import { runExport } from '../../src/export/worker/run-export.ts';
import { selectors as allSelectors } from '../../src/datasets/dictionaries.ts';
import { createRandom, type Random } from '../../src/demo/random.ts';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { unnamedFolder } from '../../src/runtime/files/work-files.ts';
import { chaosFigure, chaosSeed, inLongForm } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { beginMs, exportEvents, makeEstimateLake, retentionMs, type EstimateLake } from '../helpers/estimate-lake.ts';
import { parseCsv } from '../helpers/export-oracle.ts';
import { testFolder } from '../helpers/folder.ts';

const requests = chaosFigure('TRIBUTARY_TEST_ESTIMATES', { short: 8, long: 10_000 });
/** Requests per lake. */
const ofLake = 500;
const seed = chaosSeed();
const limits = { memoryMb: 512, threads: 1, maxRows: 1e6, maxBytes: 1e9, singleFileMaxBytes: 1e8, partMaxBytes: 1e8 };
const nowMs = Date.UTC(2026, 5, 1);

const apps: readonly ExportApp[] = [11, 12, 13, 14].map((idApp) => ({
  idApp,
  sdkKey: `key "${idApp}"`,
  title: idApp === 12 ? 'Ёлка, "big"' : `app ${idApp}`,
  platform: 'web',
  idAccount: 1,
  idProject: idApp === 13 ? undefined : 3,
}));

const names = [...allSelectors.keys()];
const zones = ['UTC', 'Europe/Moscow', 'America/St_Johns', 'Pacific/Apia', 'Asia/Tehran'];
const isoDate = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

function timeOf(random: Random, { endMs }: EstimateLake): Record<string, string> {
  const span = endMs - beginMs + 86_400_000;
  const from = beginMs - 86_400_000 + random.integer(0, span);
  const to = from + random.pick([0, 3_600_000, 86_400_000, random.integer(0, span)]);
  if (random.chance(0.5)) return { dateFrom: isoDate(from), dateTo: isoDate(to) };
  const all = random.chance(0.2);
  return { tsFrom: String(all ? 0 : Math.floor(from / 1000)), tsTo: String(Math.floor((all ? nowMs : to) / 1000)) };
}

/** Creates arguments of a create call, as a client may send them. */
function makeArguments(random: Random, lake: EstimateLake): Map<string, string[]> {
  const event = random.chance(0.4) ? random.pick(['customEvents', 'userCustomEvents']) : random.pick(exportEvents);
  const selectors = new Set(Array.from({ length: random.integer(1, 10) }, () => random.pick(names)));
  const isCustom = event === 'customEvents' || event === 'userCustomEvents';
  const isIn = (probability: number, given: Record<string, string | string[]>) =>
    random.chance(probability) ? given : {};
  const version = (): string => String(random.integer(0, lake.versions));
  const given: Record<string, string | string[]> = {
    event,
    selectors: [...selectors],
    timezone: random.pick(zones),
    ...timeOf(random, lake),
    ...isIn(0.5, { idApp: [random.integer(11, 15), random.integer(11, 15)].map(String) }),
    ...isIn(0.1, { idProject: '3' }),
    ...isIn(0.1, { rooted: random.pick(['0', '1']) }),
    ...isIn(0.1, { idCountry: random.pick(['188', '38', '7']) }),
    ...isIn(0.05, { idCampaign: ['0', '1', '2'] }),
    ...isIn(0.15, { order: 'time' }),
    ...isIn(0.15, { asOf: version() }),
    ...isIn(0.4, { format: random.pick(['csv', 'jsonl', 'parquet']) }),
    ...isIn(0.2, { compression: random.pick(['none', 'zstd']) }),
    ...(isCustom ? isIn(0.3, { eventName: random.pick([['level_up'], ['purchase', 'a,b'], ['nothing']]) }) : {}),
    ...(isCustom ? isIn(0.2, { 'params[level]': ['3', '4'] }) : {}),
    ...(['hits', 'installs'].includes(event) ? isIn(0.5, { idSegment: '7' }) : {}),
    ...isIn(0.1, { sinceVersion: version() }),
  };
  if (given['eventName'] !== undefined && random.chance(0.3)) given['eventNameInvert'] = '1';
  return new Map(Object.entries(given).map(([name, value]) => [name, [value].flat()]));
}

async function makeRequest(random: Random, lake: EstimateLake, days: Calendar): Promise<ExportSpec> {
  for (;;) {
    const request = await parseExportRequest(makeArguments(random, lake), nowMs, days);
    // Some arguments are invalid for some events.
    if (!isApiError(request)) return request;
  }
}

/** An estimate, and the export of the same request. */
interface Asked {
  readonly rows: number;
  /** As the limit counts them, if the files record it. */
  readonly bytes: number;
  readonly parts: number;
  readonly estimate: Estimate;
}

async function planOf(random: Random, lake: EstimateLake, request: ExportSpec): Promise<ReadPlan> {
  const lists = await findPlanLists(request, 1, lake);
  if ('error' in lists) throw new Error(lists.error);
  const partMaxBytes = random.pick([1e8, 1e8, 20_000]);
  return {
    request,
    apps: selectApps(request, apps),
    ...lists,
    tableDir: tableDirOf(lake.lakeDir, request),
    limits: { ...limits, partMaxBytes, singleFileMaxBytes: partMaxBytes },
    retentionMs,
    begunMs: nowMs,
  };
}

/** Expects the preview to have the first rows of the CSV of the same request. */
async function expectPreview(plan: ReadPlan, folder: string): Promise<void> {
  const request: ExportSpec = { ...plan.request, format: 'csv', compression: 'none' };
  const whole = { ...plan, request, limits, folder, stem: 'csv' };
  mkdirSync(folder);
  const made = await runExport(whole, () => undefined);
  const looked = await runDryRunJob({ ...plan, look: 'preview' });
  if (made.kind !== 'done') {
    assert.deepEqual(looked, made);
    return;
  }
  const [file] = made.files;
  const [header, ...rows] = parseCsv(readFileSync(path.join(folder, file?.name ?? ''), 'utf8'));
  const preview = (looked as { readonly preview: Preview }).preview;
  expect(preview, JSON.stringify(looked)).toMatchObject({
    columns: header,
    isTruncated: rows.length > 20,
    basis: made.basis,
  });
  expect(preview.rows.map((row) => row.map((cell) => cell ?? ''))).toEqual(rows.slice(0, 20));
  rmSync(folder, { recursive: true });
}

/** Estimates, previews and exports a request through separate processes; undefined if both reject it alike. */
async function order(plan: ReadPlan, folder: string): Promise<Asked | undefined> {
  const looked = await runDryRunJob({ ...plan, look: 'estimate' });
  mkdirSync(folder);
  const made = await runExport({ ...plan, folder, stem: 'all' }, () => undefined);
  rmSync(folder, { recursive: true });
  if (made.kind !== 'done') {
    assert.deepEqual(looked, made);
    return undefined;
  }
  expect(looked).toMatchObject({ kind: 'estimate', estimate: { basis: made.basis } });
  const { files } = made;
  const { selectors, format = 'csv' } = plan.request;
  const isText = files.every(({ name }) => !name.endsWith('.gz'));
  // Each part repeats the header, which counts once.
  const headers = format === 'csv' ? (files.length - 1) * (selectors.join(',').length + 1) : 0;
  return {
    rows: files.reduce((sum, file) => sum + file.rows, 0),
    bytes: isText ? files.reduce((sum, file) => sum + file.bytes, 0) - headers : Number.NaN,
    parts: files.length,
    estimate: (looked as { readonly estimate: Estimate }).estimate,
  };
}

/** Engines that many requests of a lake share; they close with the lake or with the test. */
function createEngines(folder: string) {
  const engines = new Map<string, Promise<QueryEngine>>();
  async function close(): Promise<void> {
    for (const engine of engines.values()) (await engine).close();
    engines.clear();
  }
  onTestFinished(close);
  function open({ apps: those, tableDir, segment, titles }: ReadPlan, inline: boolean): Promise<QueryEngine> {
    const lists = [segment, titles].flatMap((list) => (list === undefined ? [] : [path.dirname(list.absolutePath)]));
    const folders = [tableDir, folder, unnamedFolder, ...lists];
    const key = JSON.stringify([those.map(({ idApp }) => idApp), inline, folders]);
    const options = { apps: those, inline, folders, tempDir: folder, tempMaxBytes: 1e9, memoryMb: 256, threads: 1 };
    const engine = engines.get(key) ?? openQueryEngine(options);
    engines.set(key, engine);
    return engine;
  }
  return { open, close };
}

/**
 * Does the same with only the statements of an export, on an open engine: in a tenth of the time. Undefined if the
 * version is not readable.
 */
async function query(
  plan: ReadPlan,
  open: ReturnType<typeof createEngines>['open'],
  file: string,
): Promise<Asked | undefined> {
  const readVersion = await resolveReadVersion(plan).catch(() => undefined);
  if (readVersion === undefined) return undefined;
  const { cells, copyOptions } = chooseFormat(plan.request);
  const asked = planQuery(plan, readVersion, { cells, lean: false });
  const engine = await open(plan, asked.inline);
  const begin = async () => {
    await engine.run({ sql: 'DROP TABLE IF EXISTS derived', values: {} }, []);
    return createReadFiles({ plan, ...readVersion }, asked);
  };
  const told = await estimateResult({ plan, readVersion, query: asked, engine, read: await begin(), verify });
  const read = await begin();
  await prepare({ engines: [engine], read, verify }, asked, { plan, ...readVersion });
  const rows = await usePaths(readVersion, read, (paths) => engine.copyTo(asked.select, paths, file, copyOptions));
  const bytes = statSync(file).size;
  rmSync(file);
  return { rows, bytes, parts: Number.NaN, estimate: { ...told, basis: await toReportVersion(plan, readVersion) } };
}

const verify = () => Promise.resolve();

/** Reports whether a request needs separate processes: a result that cannot have a row. */
function needsWay({ request, apps: those, tableDir }: ReadPlan): boolean {
  return isEmptyResult(request, those) || !existsSync(tableDir);
}

/** NaN means unknown. */
const isWithin = (value: number, { atLeast, atMost }: Pick<EstimateRange, 'atLeast' | 'atMost'>): boolean =>
  Number.isNaN(value) || (atLeast <= value && value <= (atMost ?? Infinity));

const quantile = (values: readonly number[], share: number): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length * share)] ?? 0;

const isExact = ({ atLeast, atMost }: Pick<EstimateRange, 'atLeast' | 'atMost'>): boolean => atLeast === atMost;

test(
  'An estimate has the rows of every kind of export, and its bytes if all rows are measured, and a preview has the first rows of its file',
  async ({ skip }) => {
    inLongForm(skip);
    const random = createRandom(seed);
    const duckdb = await openDuckdb({ memoryMb: 128, threads: 1 });
    onTestFinished(() => duckdb.close());
    const days = createCalendar(duckdb);
    const folder = testFolder();
    const engines = createEngines(folder);
    const asked: Asked[] = [];
    let [refused, previews] = [0, 0];
    let lake = await makeEstimateLake(random);
    for (let n = 0; n < requests; n += 1) {
      if (n > 0 && n % ofLake === 0) {
        await engines.close();
        lake = await makeEstimateLake(random);
      }
      const request = await makeRequest(random, lake, days);
      const plan = await planOf(random, lake, request);
      const isWhole = n % 10 === 0 || requests < ofLake || needsWay(plan);
      const isShown = (n % 10 === 0 || requests < ofLake) && random.chance(0.3);
      const one = await (isWhole
        ? order(plan, path.join(folder, `${n}`))
        : query(plan, engines.open, path.join(folder, `${n}`)));
      if (isShown) {
        await expectPreview(plan, path.join(folder, `${n} preview`));
        previews += 1;
      }
      if (one === undefined) {
        refused += 1;
        continue;
      }
      const { rows, bytes, parts, estimate } = one;
      const isMeasured = isExact(estimate.bytes);
      const holds = [
        estimate.rows.expected === rows && isExact(estimate.rows),
        !isMeasured || isWithin(bytes, estimate.bytes),
        !isMeasured || isWithin(parts, estimate.parts),
      ];
      expect(holds, JSON.stringify({ seed, n, request, ...one })).toEqual([true, true, true]);
      asked.push(one);
    }
    const filled = asked.filter(({ rows }) => rows > 0);
    const text = filled.filter(({ bytes, estimate }) => !Number.isNaN(bytes) && !isExact(estimate.bytes));
    const errors = text.map(({ bytes, estimate }) => Math.abs((estimate.bytes.expected ?? 0) - bytes) / bytes);
    expect(filled.length).toBeGreaterThan(requests / 20);
    recordFinding({
      promise: 'P4',
      what: 'estimates of exports',
      wanted: 'the rows; the bytes where all rows are measured',
      figures: {
        requests,
        refused,
        previews,
        withRows: filled.length,
        sampled: text.length,
        medianErrorOfSampledBytes: quantile(errors, 0.5),
        p90ErrorOfSampledBytes: quantile(errors, 0.9),
        outsideOfBounds: text.filter(({ bytes, estimate }) => !isWithin(bytes, estimate.bytes)).length,
      },
      reached: true,
      seed,
      again: `make chaos PART=estimates SEED=${seed}`,
    });
  },
  60_000 + requests * 1000,
);
