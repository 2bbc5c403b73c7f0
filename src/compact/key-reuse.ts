import { createHash } from 'node:crypto';
import { importMethods } from '../datasets/dataset.ts';
import { fingerprintOf, requestKeyOf } from '../datasets/event-id.ts';
import { readLineHead } from '../datasets/event-line.ts';
import type { Failure } from '../lake/batch/spool-lines.ts';
import { type Notice, addKeyNotices } from '../lake/catalogue/catalogue-files.ts';
import { type RefusalFolder, type RefusalRecord, createRefusalWriter } from '../refusals/refusal-files.ts';
import type { Clock } from '../runtime/clock.ts';
import { describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';

/**
 * Reports requests that were answered with 200 and are not in the lake, because another import worker took their
 * Idempotency-Key for another request. Ingest rejects those that it detects itself.
 *
 * In: the failed events of a committed flush. Out: records among the rejected requests of their apps, and one notice
 * per app and day. A crash in between loses both; the failed events stay.
 */
export type ReportReuse = (failures: readonly Failure[]) => Promise<void>;

interface KeyReuseDependencies {
  readonly lakeDir: string;
  readonly refusals?: RefusalFolder | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Failed events of one app and kind with a reused key, and the properties of their requests. */
interface Reused {
  readonly first: NonNullable<ReturnType<typeof readLineHead>>;
  readonly requests: Set<string>;
  events: number;
}

function group(failures: readonly Failure[]): Reused[] {
  const groups = new Map<string, Reused>();
  for (const { reason, line } of failures) {
    const head = reason === 'key_reused' ? readLineHead(line) : undefined;
    if (head === undefined) continue;
    const name = `${head.idApp} ${head.kind}`;
    const reused = groups.get(name) ?? { first: head, requests: new Set(), events: 0 };
    reused.requests.add(`${requestKeyOf(head.eventId)} ${fingerprintOf(head.eventId)} ${head.receivedAtMs}`);
    reused.events += 1;
    groups.set(name, reused);
  }
  return [...groups.values()];
}

function toRecord({ first, requests, events }: Reused, nowMs: number): RefusalRecord {
  const isBatch = events > requests.size;
  const [method = first.kind] =
    [...importMethods].find(([, spec]) => spec.kind === first.kind && spec.batch === isBatch) ?? [];
  const receivedAt = new Date(first.receivedAtMs).toISOString();
  return {
    time: new Date(nowMs).toISOString(),
    method,
    status: 200,
    error: 'Not stored',
    detail: `the Idempotency-Key of a request received at ${receivedAt} stands for another request: its events were not stored, send them with a new key`,
    errors: [],
    bytes: 0,
    hasIdempotencyKey: true,
    isValidation: false,
    requests: requests.size,
  };
}

function toNotice(idApp: number, nowMs: number): Notice {
  const foundAt = new Date(nowMs).toISOString();
  const date = foundAt.slice(0, 10);
  const id = createHash('sha256').update(`key_reused ${idApp} ${date}`).digest('hex').slice(0, 16);
  return {
    id: `nt_${id}`,
    kind: 'key_reused',
    idApp,
    date,
    foundAt,
    what: 'requests were answered with 200 and not stored, because their Idempotency-Keys stand for other requests: /v1/refusals lists them; send their events with new keys',
  };
}

/** Creates the report of one compactor. It logs errors: the flush is committed by then. */
export function createReuseReport({ lakeDir, refusals, clock, logger }: KeyReuseDependencies): ReportReuse {
  const writer = refusals === undefined ? undefined : createRefusalWriter(refusals.folder, refusals.bodies);
  return async (failures) => {
    const nowMs = clock.nowMs();
    const groups = group(failures);
    try {
      for (const reused of groups) await writer?.append(reused.first.idApp, [toRecord(reused, nowMs)], nowMs);
      const notices = [...new Set(groups.map(({ first }) => first.idApp))].map((idApp) => toNotice(idApp, nowMs));
      if (notices.length > 0) await addKeyNotices(lakeDir, notices);
    } catch (error) {
      logger.warn({ error: describeError(error) }, 'cannot report reused keys to the owners of their apps');
    }
  };
}
