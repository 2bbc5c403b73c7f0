import { getExport, type Dataset } from '../../../datasets/dataset.ts';
import { pruneFiles } from '../../../lake/files/prune.ts';
import type { DataFile } from '../../../lake/log/snapshot.ts';
import { parseSchemaString } from '../../../lake/table-schema.ts';
import type { ReadPlan } from '../../jobs/worker-messages.ts';
import type { Bounds, Estimate, OverLimit } from '../../jobs/look-messages.ts';
import type { Basis } from '../basis.ts';
import { fileFilter, isEmptyResult, withColumns } from '../query.ts';
import type { QueryEngine } from '../query-engine.ts';
import { hasTitles, lookUpTitles } from '../title-sql.ts';
import { none, type Count } from './count.ts';
import { countApps } from './count-apps.ts';
import { measureTexts } from './measure-texts.ts';
import { findAsked, readOwnFacts } from './own-facts.ts';
import { resultBytes } from './result-bytes.ts';
import { countRows, rowConditions } from './row-bounds.ts';
import { readRowGroups } from './read-row-groups.ts';
import { columnOf, type TypeOf } from './row-groups.ts';
import type { SizePlan } from './value-size.ts';

/** What an export takes beside its rows and bytes, and what it does of them in a second, as measured (docs/api.md). */
const startSeconds = 0.7;
const rowsRead = 4_000_000;
const bytesWritten = 100_000_000;

function toBounds({ least, most, expected }: Count): Bounds {
  return {
    atLeast: Math.floor(least),
    expected: Number.isFinite(expected) ? Math.round(expected) : null,
    atMost: Number.isFinite(most) ? Math.ceil(most) : null,
  };
}

/** How many files a result is. A part and the first row of the next do not fit into one. */
function countParts({ request, limits }: ReadPlan, bytes: Count): Pick<Estimate, 'parts'> {
  const { format = 'csv', compression } = request;
  if (format === 'parquet' || compression === 'zstd') return { parts: { atLeast: 1, atMost: 1 } };
  const { partMaxBytes, singleFileMaxBytes } = limits;
  const plain = { none: partMaxBytes, gzip: -1, auto: singleFileMaxBytes }[compression ?? 'auto'];
  const most = (size: number): number =>
    size <= Math.max(plain, partMaxBytes) ? 1 : Math.ceil((2 * size) / partMaxBytes) + 1;
  const isOne = bytes.least <= Math.max(plain, 0);
  return {
    parts: {
      atLeast: isOne ? 1 : Math.max(1, Math.ceil(bytes.least / partMaxBytes)),
      atMost: Number.isFinite(bytes.most) ? most(bytes.most) : null,
    },
  };
}

const todo = 'Ask for fewer days, apps or fields, one after the other, or have the operator raise the limit.';

function over(limit: OverLimit['limit'], allowed: number, { least, most }: Count): OverLimit[] {
  return most > allowed ? [{ limit, allowed, isCertain: least > allowed, todo }] : [];
}

/** The limits that a result may be over. */
function findOverLimit({ limits }: ReadPlan, rows: Count, bytes: Count): OverLimit[] {
  return [...over('rows', limits.maxRows, rows), ...over('bytes', limits.maxBytes, bytes)];
}

async function sizePlan({ request, apps, titles }: ReadPlan, dataset: Dataset, engine: QueryEngine): Promise<SizePlan> {
  const counts = titles?.counts ?? {};
  const shown = request.selectors.filter((name) => hasTitles(name, counts));
  const looked = shown.map((name) => [name, lookUpTitles(name, 'NULL', counts)] as const);
  const longest = 'SELECT coalesce(max(strlen(title)), 0) FROM read_parquet($titles, hive_partitioning = false)';
  const longestTitle =
    titles === undefined || shown.length === 0
      ? 0
      : await engine.run({ sql: longest, values: { titles: titles.file } }, []);
  const plan = { dataset, apps, inline: false, cells: 'text', titles: new Map(looked), longestTitle } as const;
  return { ...getExport(request.event), ...plan };
}

/** The rows and bytes of the result. */
async function bound(
  plan: ReadPlan,
  { snapshot, sinceMs }: Basis,
  files: readonly DataFile[],
  engine: QueryEngine,
): Promise<{ readonly rows: Count; readonly bytes: Count }> {
  const { request, apps } = plan;
  const { format = 'csv' } = request;
  const { dataset: declared, event } = getExport(request.event);
  const schema = parseSchemaString(snapshot.schemaString ?? '{"fields":[]}');
  const dataset = withColumns(declared, schema);
  const types = new Map(schema.map(({ name, type }) => [name, type]));
  const typeOf: TypeOf = (name) => types.get(name);
  const { emptyFile } = snapshot;
  const conditions = rowConditions(request, { dataset, event }, apps, sinceMs);
  const sizes = await sizePlan(plan, dataset, engine);
  const asked = findAsked((group) => {
    const { ofGroups: counts } = countRows(request, { dataset, event }, [group], conditions);
    resultBytes(request, { plan: sizes, groups: [group], counts });
  });
  const known = await readRowGroups(engine, files, [...new Set(asked.map(columnOf))], typeOf);
  const counted = await countApps(engine, known, apps);
  const own = await readOwnFacts(engine, counted, { asked, format, emptyFile, typeOf });
  const groups = await measureTexts(engine, own, { selectors: request.selectors, format, emptyFile, typeOf });
  const { ofGroups, rows } = countRows(request, { dataset, event }, groups, conditions);
  return {
    rows,
    bytes: resultBytes(request, { plan: sizes, groups, counts: ofGroups }),
  };
}

/** The files that have a row of the result, as far as the log says. */
export function listFiles({ request, apps }: ReadPlan, { snapshot, sinceMs }: Basis): DataFile[] {
  if (snapshot.schemaString === undefined || isEmptyResult(request, apps)) return [];
  return pruneFiles(snapshot.files, fileFilter(request, apps, { sinceMs }));
}

/**
 * Says what a result will be, by the statistics of the log and of the files' footers: of rows no more is read than whose
 * they are, where several apps lie together, and how long their texts are, where there are not too many. Errors: `sql`
 * where a file cannot be read; those of the system.
 */
export async function estimate(
  plan: ReadPlan,
  basis: Basis,
  files: readonly DataFile[],
  engine: QueryEngine,
): Promise<Omit<Estimate, 'basis'>> {
  const { rows, bytes } =
    files.length === 0 ? { rows: none, bytes: resultBytes(plan.request) } : await bound(plan, basis, files, engine);
  const read = files.reduce((all, { numRecords = 0 }) => all + numRecords, 0);
  const seconds =
    startSeconds + read / rowsRead + (Number.isFinite(bytes.expected) ? bytes.expected : 0) / bytesWritten;
  return {
    rows: toBounds(rows),
    bytes: toBounds(bytes),
    ...countParts(plan, bytes),
    seconds: Math.ceil(seconds * 10) / 10,
    overLimits: findOverLimit(plan, rows, bytes),
  };
}
