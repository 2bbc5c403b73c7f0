import type { Logger } from '../runtime/logger.ts';
import type { Refusal } from './refusal.ts';

const maxLinesPerSecond = 20;

/** Logs refused requests, so many a second and no more: a client that does everything wrong must not fill the disk. */
export interface RefusalLog {
  add(refusal: Refusal, request: { readonly method: string | undefined; readonly idApp: string | undefined }): void;
}

/** Creates the log; what it leaves out is counted in the next line. */
export function createRefusalLog(logger: Logger): RefusalLog {
  let second = 0;
  let lines = 0;
  let leftOut = 0;
  return {
    add({ reason, detail }, request) {
      const now = Math.floor(performance.now() / 1000);
      if (now !== second) {
        second = now;
        lines = 0;
      }
      lines += 1;
      if (lines > maxLinesPerSecond) {
        leftOut += 1;
        return;
      }
      logger.info({ ...request, reason, detail, ...(leftOut === 0 ? {} : { leftOut }) }, 'request refused');
      leftOut = 0;
    },
  };
}
