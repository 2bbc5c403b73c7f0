import { getSelector } from '../../../datasets/dictionaries.ts';
import { parseSchemaString } from '../../../lake/table-schema.ts';
import type { Preview } from '../../jobs/look-messages.ts';
import type { ReadPlan } from '../../jobs/worker-messages.ts';
import type { Basis } from '../basis.ts';
import type { ExportQuery } from '../export-query.ts';
import { before, pathsOf, prepare } from '../prepare.ts';
import { buildEmptyQuery, buildQuery, isEmptyResult } from '../query.ts';
import type { QueryEngine } from '../query-engine.ts';
import { createReadFiles, createVerify, type ReadFiles } from '../read-files.ts';
import { planSlices, type Slice } from '../slices.ts';
import { watch } from '../watch-statement.ts';

/** Rows of a preview, at most. */
export const previewRows = 20;

type Cells = (string | null)[];

/** The query of a result, as an export asks it; without the sort that large sets need there and that changes nothing. */
export function previewQuery(plan: ReadPlan, { snapshot, sinceMs }: Basis): ExportQuery {
  const { request, apps, segment, titles } = plan;
  const { schemaString } = snapshot;
  if (schemaString === undefined || isEmptyResult(request, apps)) return buildEmptyQuery(request);
  const columns = parseSchemaString(schemaString);
  return buildQuery(request, apps, { lean: true, columns, sinceMs, segment, titles });
}

/**
 * The files in pieces, the first rows in the first. Rows of derived events and of `order=time` may be in any file: these
 * are read in one piece.
 */
function piecesOf({ request }: ReadPlan, { preparation }: ExportQuery, { files }: ReadFiles): Slice[] {
  if (preparation !== undefined || request.order === 'time' || files.length === 0) return [{ files }];
  return planSlices(files).filter(({ rows }) => rows === undefined || rows.from === 0);
}

/** The cells of the first rows, each as the text that CSV has of it. */
async function readCells(
  engine: QueryEngine,
  { select: { sql, values } }: ExportQuery,
  paths: readonly string[],
  limit: number,
): Promise<Cells[]> {
  const rows = await engine.rows(
    { sql: `SELECT CAST(COLUMNS(*) AS VARCHAR) FROM (${sql} LIMIT ${limit})`, values },
    paths,
  );
  return rows.map((row) => Object.values(row).map((cell) => (typeof cell === 'string' ? cell : null)));
}

/**
 * Reads the first rows of a result, and as few of its files as have them. Errors: those of the engine; `file_damaged`.
 */
export async function preview(
  plan: ReadPlan,
  basis: Basis,
  query: ExportQuery,
  engine: QueryEngine,
): Promise<Omit<Preview, 'basis'>> {
  const { snapshot, sinceMs } = basis;
  const read = createReadFiles({ plan, snapshot, sinceMs });
  const verify = createVerify({ plan, snapshot });
  const isEmpty = !query.select.sql.includes('$files');
  if (!isEmpty && query.preparation === undefined) read.reachOut(0);
  await prepare({ engines: [engine], read, verify }, query, { plan, snapshot }, () => undefined);
  // One more than is shown says whether there are more.
  const wanted = previewRows + 1;
  const rows: Cells[] = [];
  for (const { files } of piecesOf(plan, query, read)) {
    if (rows.length >= wanted) break;
    await verify(files);
    const reading = readCells(engine, query, pathsOf({ snapshot }, { files }), wanted - rows.length);
    rows.push(...(await watch(engine, before({ plan }), () => undefined, reading)));
  }
  const columns = plan.request.selectors.map((name) => getSelector(name).name);
  return { columns, rows: rows.slice(0, previewRows), isCut: rows.length > previewRows };
}
