import { AppError } from '../runtime/errors.ts';
import type { LakeState } from '../lake/log/lake-state.ts';

/** Throws `fenced` unless this compactor still owns the lake; `cause` is the error that made the caller look. */
export function assertOwner(lake: LakeState, writer: string, cause?: unknown): void {
  if (lake.writer === writer) return;
  throw new AppError('fenced', 'another compactor has taken over the lake', {
    cause,
    hint: 'Let only one compactor run on a data folder.',
  });
}
