import { sqlList } from '../lake/sql/literals.ts';
import type { LakeReader } from './lake-query.ts';

/** What the files of one report hold, all parts together. */
export interface DownloadedReport {
  readonly rows: number;
  readonly distinctIds: number;
  readonly bytes: number;
  readonly parts: number;
  /** Rows by eventName. */
  readonly byName: ReadonlyMap<string, number>;
}

/** Reads a report's parts (`.csv` or `.csv.gz`, each with the header) that have the selectors eventId and eventName. */
export async function readDownloadedReport(
  reader: LakeReader,
  files: readonly { file: string; bytes: number }[],
): Promise<DownloadedReport> {
  const csv = `read_csv(${sqlList(files.map(({ file }) => file))}, header = true, all_varchar = true, delim = ',', quote = '"', escape = '"')`;
  const [totals] = await reader.plain(`SELECT count(*) AS rows, count(DISTINCT eventId) AS ids FROM ${csv}`);
  const names = await reader.plain(`SELECT eventName AS name, count(*) AS events FROM ${csv} GROUP BY ALL`);
  return {
    rows: Number(totals?.['rows']),
    distinctIds: Number(totals?.['ids']),
    bytes: files.reduce((sum, { bytes }) => sum + bytes, 0),
    parts: files.length,
    byName: new Map(names.map((row) => [String(row['name']), Number(row['events'])])),
  };
}
