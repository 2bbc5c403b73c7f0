import { createBoundedLog } from '../runtime/conditions/bounded-log.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Refusal } from './refusal.ts';

/** Logs refused requests, so many a second and no more: a client that does everything wrong must not fill the disk. */
export interface RefusalLog {
  add(refusal: Refusal, request: { readonly method: string | undefined; readonly idApp: string | undefined }): void;
}

/** Creates the log; what it leaves out is counted in the next line. */
export function createRefusalLog(logger: Logger): RefusalLog {
  const log = createBoundedLog((fields) => logger.info(fields, 'request refused'), { maxLines: 20, windowMs: 1000 });
  return { add: ({ reason, detail }, request) => log.add({ ...request, reason, detail }) };
}
