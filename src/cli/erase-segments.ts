import { dataPaths, type Config } from '../config.ts';
import type { ErasureTarget } from '../operate/erase/erase-target.ts';
import { forgetIds, type ForgottenIds } from '../operate/lists/forget-ids.ts';
import type { Clock } from '../runtime/clock.ts';

/** Where the ids of an erasure may stand in segments: words of the command line, as far as they matter here. */
export interface ErasedFrom {
  readonly app?: number | undefined;
  readonly account?: number | undefined;
}

/**
 * The ids that an erasure takes out of segments: those of users (custom ones) or of devices, of one account where it
 * is named. None where only some of a person's events are meant: those of one app, or of a user on one device.
 */
export function findForgotten(
  { users, userKind, devices }: ErasureTarget,
  { app, account }: ErasedFrom,
): ForgottenIds | undefined {
  if (app !== undefined || (users !== undefined && devices !== undefined)) return undefined;
  const within = account === undefined ? {} : { idAccount: account };
  if (devices !== undefined) return { kind: 'device', ids: devices, ...within };
  const isCustom = userKind === undefined || userKind === 'custom';
  return users !== undefined && isCustom ? { kind: 'custom', ids: users, ...within } : undefined;
}

/** Takes the ids of an erasure out of segments; returns how many segments had any. Errors: those of `forgetIds`. */
export async function eraseFromSegments(
  config: Config,
  forgotten: ForgottenIds | undefined,
  clock: Clock,
  signal: AbortSignal,
): Promise<number> {
  if (forgotten === undefined) return 0;
  const options = { clock, memoryMb: config.duckdbMemoryMb, signal };
  return forgetIds(dataPaths(config.dataDir).segments, forgotten, options);
}
