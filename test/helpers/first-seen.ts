import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { pinFirstSeen } from '../../src/export/worker/first-seen.ts';
import { firstSeenFolder, readFirstSeenParts, type StoredPart } from '../../src/lake/first-seen/first-seen-parts.ts';
import { findObsolete, listUncovered, planMerge } from '../../src/lake/first-seen/plan-parts.ts';
import { readSnapshot, type Snapshot } from '../../src/lake/log/snapshot.ts';
import { testFolder } from './folder.ts';
import { createRandom, oracleApps, toFixtureEvent, type ImportedEvent } from './export-events.ts';
import { formatRequest } from './format-request.ts';
import { eventLine, newEventId } from './lake.ts';

const daySeconds = 86_400;

/** Converts an event to a line as ingest publishes it. */
export function toEventLine(event: ImportedEvent): Record<string, unknown> {
  const { available_at: _available, ...members } = toFixtureEvent(event);
  return eventLine({ custom_user_id: undefined, ...members, received_at: event.eventTimestamp * 1000 });
}

/**
 * Generates events of users and devices whose ids several apps share. Their times are up to `days` before a time, Unix
 * s, so that all sizes of groups occur. The order is that of arrival: one in eight is late.
 */
export function drawHistories(seed: number, before: number, days: number): readonly ImportedEvent[] {
  const random = createRandom(seed);
  const pauses = [0, 1, 60, 3600, daySeconds];
  // Few dates, since each has its own files.
  const ages = [1, 2, 9, 10, 40, days];
  const drawDay = (): number => before - (ages[random(ages.length)] ?? 0) * daySeconds;
  const events = Array.from({ length: 90 }, (_unused, history): ImportedEvent[] => {
    let eventTimestamp = drawDay() + random(daySeconds);
    const idApp = oracleApps[random(oracleApps.length)]?.idApp ?? 0;
    return Array.from({ length: 1 + random(5) }, () => {
      eventTimestamp = Math.min(before, eventTimestamp + (pauses[random(pauses.length)] ?? 0));
      const isLate = random(8) === 0;
      return {
        eventId: newEventId(),
        kind: 'login',
        idApp,
        eventTimestamp,
        available: eventTimestamp + (isLate ? 30 * daySeconds : 0),
        fields: {
          ...(random(4) > 0 ? { customUserId: random(12) === 0 ? '' : `user ${history % 30}` } : {}),
          ...(random(3) > 0 ? { lvid: String(history % 35).padStart(32, 'a') } : {}),
          ...(random(3) === 0 ? { gaid: String(history % 35).padStart(36, 'b') } : {}),
        },
      };
    });
  }).flat();
  return events.toSorted((a, b) => a.available - b.available);
}

/** What the parts of a lake are compared with. */
export interface FoundParts {
  readonly snapshot: Snapshot;
  readonly parts: readonly StoredPart[];
}

export async function readFound(lakeDir: string): Promise<FoundParts> {
  return { snapshot: await readSnapshot(path.join(lakeDir, 'events')), parts: await readFirstSeenParts(lakeDir) };
}

/** Lists the files in the folder of parts, without that of its lock. */
export async function listParts(lakeDir: string): Promise<string[]> {
  return (await readdir(firstSeenFolder(lakeDir))).filter((name) => name !== '.lock').toSorted();
}

/** Lists the files of the parts. */
export function namesOf({ parts }: FoundParts): string[] {
  return parts.flatMap(({ id, absolutePath }) => [`${id}.json`, path.basename(absolutePath)]).toSorted();
}

/** Reports whether a number of rows is sealed and in parts, and no change of parts is due. */
export async function isSettled(
  lakeDir: string,
  rows: number,
  largest?: Parameters<typeof planMerge>[2],
): Promise<boolean> {
  const { snapshot, parts } = await readFound(lakeDir);
  const { files, young } = snapshot;
  return (
    young.length === 0 &&
    files.reduce((sum, { numRecords = 0 }) => sum + numRecords, 0) === rows &&
    listUncovered(parts, files).length === 0 &&
    findObsolete(parts, files).length === 0 &&
    planMerge(parts, new Date().toISOString().slice(0, 10), largest) === undefined
  );
}

/** Returns the numbers of files with rows whose earlier rows an export of new users since a time, Unix s, reads or not. */
export async function countFiles({ snapshot }: FoundParts, fromSeconds: number) {
  const request = { ...formatRequest(), event: 'newUsers', eventTime: { fromSeconds } };
  const apps = oracleApps.map((app) => ({ ...app, idProject: undefined }));
  const covered = (await pinFirstSeen({ request, apps }, snapshot, testFolder()))?.covered ?? new Set();
  // An erasure leaves files without rows.
  const files = snapshot.files.filter(({ numRecords }) => numRecords !== 0);
  const left = files.filter((file) => covered.has(file)).length;
  return { read: files.length - left, left };
}
