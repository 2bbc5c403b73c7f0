import { listTitleFields } from '../../datasets/dictionaries.ts';
import { describeError, isDamage } from '../../runtime/errors.ts';
import { findSegment } from '../../segments/segment-store.ts';
import { findTitles } from '../../titles/title-store.ts';
import type { ExportSpec } from './export-spec.ts';
import type { WorkerPlan } from './worker-messages.ts';

export interface ListFolders {
  readonly segmentsDir: string;
  readonly titlesDir: string;
}

/** What of a plan comes from an operator's lists. */
export type PlanLists = Pick<WorkerPlan, 'segment' | 'titles'>;

/** Why a request cannot be made: its segment is gone, or a record is damaged. */
export interface ListFault {
  readonly error: string;
  readonly isDamage: boolean;
}

async function findLists(
  { selectors, idSegment }: ExportSpec,
  idAccount: number,
  { segmentsDir, titlesDir }: ListFolders,
): Promise<PlanLists | ListFault> {
  const asksForTitles = selectors.some((name) => listTitleFields(name).length > 0);
  const titles = asksForTitles ? await findTitles(titlesDir) : undefined;
  const ofTitles = titles === undefined ? {} : { titles };
  if (idSegment === undefined) return ofTitles;
  const segment = await findSegment(segmentsDir, { idAccount, idSegment: Number(idSegment) });
  // Without it the export would be another one.
  return segment === undefined
    ? { error: `segment ${idSegment} was removed after the export was ordered`, isDamage: false }
    : { ...ofTitles, segment };
}

/**
 * Looks up the lists of a request as they are now: an attempt has them from here to its end. Errors: those of the
 * system.
 */
export async function findPlanLists(
  request: ExportSpec,
  idAccount: number,
  folders: ListFolders,
): Promise<PlanLists | ListFault> {
  try {
    return await findLists(request, idAccount, folders);
  } catch (error) {
    if (!isDamage(error)) throw error;
    return { error: describeError(error), isDamage: true };
  }
}
