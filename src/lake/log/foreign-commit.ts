import { AppError } from '../../runtime/errors.ts';
import type { Problem } from '../../runtime/conditions/problem.ts';
import type { Action, CommitInfoAction } from './actions.ts';

/**
 * Commits of other engines. Only this service may write the table, and the table's protocol says so (protocol.ts); a
 * writer that does not look at it may commit all the same. A commit that changes nothing, such as those of a VACUUM, is
 * read over. One that changes the table stops every writer of ours at the version before it, until `tributary lake
 * repair` has brought the table on by a commit of cause `repair`; readers of ours answer from that version meanwhile.
 */
export interface ForeignCommit {
  readonly version: number;
  /** As the engine names itself. */
  readonly engine: string;
  /** Such as `OPTIMIZE`. */
  readonly operation: string;
  /** ISO 8601, by that engine's clock; undefined when it left it out. */
  readonly at: string | undefined;
}

/** Says whether a commit changes the table: its files, its columns, its protocol or a position. */
export function changesTable(actions: readonly Action[]): boolean {
  return actions.some((action) => action.commitInfo === undefined);
}

function isTime(value: unknown): value is number {
  return typeof value === 'number' && Math.abs(value) <= 8.64e15;
}

function shorten(value: unknown): string {
  return typeof value === 'string' && value !== '' ? value.slice(0, 80) : 'unknown';
}

/** Describes a commit of another engine by what it says about itself; a stranger's text is cut short. */
export function toForeignCommit(version: number, info: CommitInfoAction | undefined): ForeignCommit {
  return {
    version,
    engine: shorten(info?.engineInfo),
    operation: shorten(info?.operation),
    at: isTime(info?.timestamp) ? new Date(info.timestamp).toISOString() : undefined,
  };
}

/**
 * The problem that a foreign commit is, with the next step. `table` names a table beside that of the events, into which
 * nothing waits to be flushed.
 */
export function describeForeign({ version, engine, operation, at }: ForeignCommit, table?: string): Problem {
  if (table !== undefined)
    return {
      code: 'foreign_commit',
      subject: table,
      what: `another engine (${engine}) has changed the lake's table ${table}: version ${version}, ${operation}, at ${at ?? 'an unknown time'}; nothing is written to it, and exports read version ${version - 1}`,
      todo: "Stop that engine's job, then run 'tributary lake repair': it brings the table back by a new commit.",
    };
  return {
    code: 'foreign_commit',
    what: `another engine (${engine}) has changed the lake's table: version ${version}, ${operation}, at ${at ?? 'an unknown time'}; events wait in the stream, and exports read version ${version - 1}`,
    todo: "Stop that engine's job, then run 'tributary lake repair': it brings the table back by a new commit, and everything goes on by itself. Nothing acknowledged is lost.",
  };
}

/** The error of whoever would write a table that another engine has changed. */
export function foreignError(foreign: ForeignCommit): AppError {
  const { what, todo } = describeForeign(foreign);
  return new AppError('foreign_commit', what, { hint: todo });
}
