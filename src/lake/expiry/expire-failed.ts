import { events, importDatasets } from '../../datasets/dataset.ts';
import { readEventHead } from '../../datasets/event-line.ts';
import type { FailedEvent } from '../files/failed-events.ts';
import { removeFailed, type RemoveFailedDependencies } from '../remove-failed.ts';
import type { Cutoffs } from './age-rules.ts';

/** Returns the kind of an event for age limits (`kindsOf`). */
function ruleKindOf(kind: string): string {
  const dataset = importDatasets.find(({ kinds }) => kinds.includes(kind));
  return dataset === undefined || dataset === events ? kind : dataset.table;
}

/** Creates a test of failed events that have exceeded their limit. Events without a readable time stay. */
export function createExpiredTest({ findMs }: Cutoffs): (event: FailedEvent) => boolean {
  return ({ line, lineBase64, load }) => {
    const head = lineBase64 === undefined && load === undefined ? readEventHead(line) : undefined;
    return head?.eventTimeMs !== undefined && head.eventTimeMs < findMs(head.idApp, ruleKindOf(head.kind ?? ''));
  };
}

/** Removes failed events that have exceeded their limit, under the maintenance lock. Returns their number. */
export function expireFailed(dependencies: RemoveFailedDependencies, cutoffs: Cutoffs): Promise<number> {
  return removeFailed(dependencies, 'expire', createExpiredTest(cutoffs));
}
