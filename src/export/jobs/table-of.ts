import { events, findExport } from '../../datasets/dataset.ts';
import { tablePaths } from '../../lake/lake.ts';
import type { ExportSpec } from './export-spec.ts';

/** The table that has the rows of a request's event. */
export function tableDirOf(lakeDir: string, { event }: Pick<ExportSpec, 'event'>): string {
  return tablePaths(lakeDir, findExport(event)?.dataset ?? events).table;
}
