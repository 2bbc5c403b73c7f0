import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { dataPaths } from '../../src/config.ts';
import type { ReportJob } from '../../src/reports/reports.ts';
import { ensureSigningKeys } from '../../src/reports/signed-links.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { renderChecksummed } from '../../src/runtime/files/checksummed-json.ts';

const hour = 3600;

function jobOf(id: number, count: number, idUser: string, nowMs: number): ReportJob {
  const createdMs = nowMs - (count - id) * 60_000;
  const state = id % 7 === 3 ? 'user_failed' : id % 7 === 5 ? 'canceled' : 'success';
  return {
    id,
    idUser,
    idAccount: 1,
    event: 'customEvents',
    nonce: id.toString(16).padStart(32, '0'),
    createdMs,
    state,
    attempts: 1,
    request: {
      event: 'customEvents',
      selectors: ['eventId', 'eventName'],
      timezone: 'UTC',
      eventTime: { fromSeconds: 1_746_057_600, beforeSeconds: 1_746_144_000 },
      availableAt: {},
      eventNameInvert: false,
      filters: {},
    },
    finishedMs: createdMs + 2000,
    expiresSeconds: Math.floor(nowMs / 1000) + 20 * hour,
    ...(state === 'success'
      ? { files: [{ name: 'part.csv', rows: id, bytes: id * 100, sha256: 'a'.repeat(64) }] }
      : {}),
    ...(state === 'user_failed' ? { error: 'The export has more rows than the limit of 1' } : {}),
  };
}

/**
 * Writes ended requests of a user into a data folder before its service starts: ids from 1 to `count`, oldest first.
 */
export async function writePastRequests(dataDir: string, idUser: string, count: number): Promise<void> {
  const { reports, keys } = dataPaths(dataDir);
  await ensureSigningKeys(keys, createClock(0));
  const nowMs = Date.now();
  for (let id = 1; id <= count; id += 1) {
    const folder = path.join(reports, String(id));
    mkdirSync(folder, { recursive: true });
    writeFileSync(path.join(folder, 'job.json'), renderChecksummed({ ...jobOf(id, count, idUser, nowMs) }));
  }
}
