/** Conditions: problems as values that travel from a stage to the operator, and bounded logs. Stores nothing. */
import { isKeyOf } from '../files/checksummed-json.ts';
import { problemTable } from './problem-table.ts';

export type ProblemCode = keyof typeof problemTable;

export const problemCodes = Object.keys(problemTable).filter((code) => isKeyOf(problemTable, code));

/** A condition in one sentence, and the operator's next step, in `/readyz`, the log and `tributary status`. */
export interface Problem {
  readonly code: ProblemCode;
  /** The process, file or time, if one code can apply to several at once. */
  readonly subject?: string;
  /** The condition; may contain figures that change. */
  readonly message: string;
  readonly action: string;
  /** When it was first observed, ISO 8601; absent in reports of a stage. */
  readonly since?: string;
}

export function isProblemCode(value: unknown): value is ProblemCode {
  return typeof value === 'string' && Object.hasOwn(problemTable, value);
}

/** Returns the identity of a problem: its code and subject. */
export function problemKey({ code, subject }: Problem): string {
  return subject === undefined ? code : `${code} ${subject}`;
}

/** Reports whether two values are the same problem, whose figures may differ. */
export function isSameProblem(one: Problem, other: Problem): boolean {
  return problemKey(one) === problemKey(other);
}
