import type { AccessReader } from '../../access/access.ts';
import { events, findExport } from '../../datasets/dataset.ts';
import { listTitleFields } from '../../datasets/dictionaries.ts';
import { listTables, tablePaths } from '../../lake/lake.ts';
import { listLog } from '../../lake/log/log-files.ts';
import type { Clock } from '../../runtime/clock.ts';
import { describeError, isDamage } from '../../runtime/errors.ts';
import { findSegment } from '../../segments/segment-store.ts';
import { findTitles } from '../../titles/title-store.ts';
import { selectApps, type ExportSpec } from './export-spec.ts';
import type { ReadPlan, WorkerLimits } from './worker-messages.ts';

interface ListFolders {
  readonly segmentsDir: string;
  readonly titlesDir: string;
}

export interface ReadOptions extends ListFolders {
  readonly lakeDir: string;
  readonly limits: WorkerLimits;
  readonly retentionMs: number;
}

type PlanLists = Pick<ReadPlan, 'segment' | 'titles'>;

/** Why a request cannot run: its segment was removed, or a record is damaged. */
export interface ListError {
  readonly error: string;
  readonly isDamage: boolean;
}

/** Returns the folder of the table that has the rows of an event. */
export function tableDirOf(lakeDir: string, { event }: Pick<ExportSpec, 'event'>): string {
  return tablePaths(lakeDir, findExport(event)?.dataset ?? events).table;
}

/** Returns the newest versions of all tables as a text; undefined if a log cannot be listed. */
export async function findTableVersions(lakeDir: string): Promise<string | undefined> {
  try {
    const logs = (await listTables(lakeDir)).map(async ({ table }) => {
      const { commits, checkpoints } = await listLog(tablePaths(lakeDir, { table }).table);
      return `${table} ${Math.max(commits.at(-1) ?? -1, checkpoints.at(-1) ?? -1)}`;
    });
    return (await Promise.all(logs)).join();
  } catch {
    return undefined;
  }
}

/** Finds the current lists of a request. Errors: those of the system. */
export async function findPlanLists(
  { selectors, idSegment }: ExportSpec,
  idAccount: number,
  { segmentsDir, titlesDir }: ListFolders,
): Promise<PlanLists | ListError> {
  try {
    const showsTitles = selectors.some((name) => listTitleFields(name).length > 0);
    const titles = showsTitles ? await findTitles(titlesDir) : undefined;
    const ofTitles = titles === undefined ? {} : { titles };
    if (idSegment === undefined) return ofTitles;
    const segment = await findSegment(segmentsDir, { idAccount, idSegment: Number(idSegment) });
    return segment === undefined
      ? { error: `segment ${idSegment} was removed after the export was created`, isDamage: false }
      : { ...ofTitles, segment };
  } catch (error) {
    if (!isDamage(error)) throw error;
    return { error: describeError(error), isDamage: true };
  }
}

/** Plans what a worker reads for a request, as access and lists are now. Errors: those of the system. */
export async function planRead(
  request: ExportSpec,
  idAccount: number,
  { access, clock }: { readonly access: AccessReader; readonly clock: Clock },
  options: ReadOptions,
): Promise<ReadPlan | ListError> {
  const lists = await findPlanLists(request, idAccount, options);
  if ('error' in lists) return lists;
  const { lakeDir, limits, retentionMs } = options;
  const apps = selectApps(request, access.current().appsOfAccount(idAccount));
  const tableDir = tableDirOf(lakeDir, request);
  return { request, apps, ...lists, tableDir, limits, retentionMs, begunMs: clock.nowMs() };
}
