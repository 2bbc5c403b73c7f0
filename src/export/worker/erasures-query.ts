import { removedBySql } from '../../lake/event-index/erasure-list.ts';
import { parseCursor } from '../../lake/log/change-feed.ts';
import type { ErasureListState } from '../../lake/log/lake-state.ts';
import { erasureColumns, type ExportSpec } from '../jobs/export-spec.ts';
import { filesSql, noDays, type ExportQuery } from './export-query.ts';
import type { Cells } from './selector-sql.ts';

/** SQL of each column of the erasure list, of its type. */
const columnSql: Readonly<Record<(typeof erasureColumns)[number], string>> = {
  idApp: 'id_app',
  eventId: 'event_id',
  kind: 'kind',
  before: 'before',
};

/**
 * Builds the query of the rows that were removed after a cursor, from the list of the version that is read. Without a
 * list it has no rows.
 */
export function buildErasuresQuery(
  { sinceVersion = '0' }: Pick<ExportSpec, 'sinceVersion'>,
  erasures: ErasureListState | undefined,
  cells: Cells,
): ExportQuery {
  const selected = erasureColumns.map(
    (name) => `${cells === 'text' ? `CAST(${columnSql[name]} AS VARCHAR)` : columnSql[name]} AS "${name}"`,
  );
  // A file without rows is not read.
  const list = erasures?.rows === 0 ? undefined : erasures;
  const rows =
    list === undefined
      ? 'SELECT NULL::BIGINT AS id_app, NULL::VARCHAR AS event_id, NULL::VARCHAR AS kind, NULL::DATE AS before WHERE false'
      : `SELECT DISTINCT id_app, event_id, kind, before FROM ${filesSql} SEMI JOIN apps USING (id_app) WHERE ${removedBySql(list)} > $afterVersion`;
  const values = list === undefined ? {} : { afterVersion: BigInt(parseCursor(sinceVersion)?.version ?? 0) };
  return {
    select: { sql: `SELECT ${selected.join(', ')} FROM (${rows}) ORDER BY id_app, event_id, kind, before`, values },
    count: { sql: `SELECT 0 AS file, count(*) AS rows FROM (${rows})`, values },
    days: noDays,
    inline: false,
  };
}
