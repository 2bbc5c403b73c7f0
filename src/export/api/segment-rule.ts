import { quote } from './arguments.ts';
import { badRequest, type Refusal } from './envelope.ts';

/** The segments that a caller may name, by their ids: those of the caller's account. */
export type ListSegmentIds = (idAccount: number) => Promise<readonly number[]>;

/** How many of the allowed ids a refusal names. */
const namedIds = 20;

function describeAllowed(ids: readonly number[]): string {
  if (ids.length === 0) return 'the id of an available segment, and there is none';
  const more = ids.length > namedIds ? ` and ${ids.length - namedIds} more` : '';
  return `the id of an available segment: ${ids.slice(0, namedIds).join(', ')}${more}`;
}

/**
 * Refuses the id of a segment that the caller's account has not; one of another account is no other than one that
 * nobody has. `ids` are those of the account, ascending.
 */
export function refuseSegment(idSegment: string, ids: readonly number[]): Refusal | undefined {
  if (ids.some((id) => String(id) === idSegment)) return undefined;
  return badRequest(`Argument idSegment is invalid: ${quote(idSegment)}; allowed: ${describeAllowed(ids)}`);
}
