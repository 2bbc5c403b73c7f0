import type { TxnAction } from './actions.ts';

/**
 * What the log says of each load for ever, also when the commit that brought its rows has long been trimmed: a txn
 * action, which checkpoints keep. The load's id stands for the content of its file and for what was asked of it.
 */

/**
 * `loaded`: its rows are in the table, or were repeats of what is there. `review`: so they were, and a load that had
 * some of the same rows was undone since: loading the file again looks through its rows anew. `undone`: its rows were
 * taken out.
 */
export const loadStatuses = ['loaded', 'review', 'undone'] as const;
export type LoadStatus = (typeof loadStatuses)[number];

export interface LoadState {
  /** How often the file was loaded, undone loads among them; from 1. */
  readonly generation: number;
  readonly status: LoadStatus;
}

const prefix = 'load/';
const statusCount = 4;

/** The state of a load; undefined when there never was one of this id. */
export function findLoadState(txns: ReadonlyMap<string, number>, loadId: string): LoadState | undefined {
  const version = txns.get(prefix + loadId);
  return version === undefined ? undefined : parseState(version);
}

function parseState(version: number): LoadState | undefined {
  const status = loadStatuses[version % statusCount];
  return status === undefined ? undefined : { generation: Math.floor(version / statusCount), status };
}

/** Says whether nothing was done to a load between two states of it. */
export function isSameLoadState(one: LoadState | undefined, other: LoadState | undefined): boolean {
  return one?.generation === other?.generation && one?.status === other?.status;
}

/** Every load that the log knows, by id. */
export function listLoadStates(txns: ReadonlyMap<string, number>): ReadonlyMap<string, LoadState> {
  return new Map(
    [...txns].flatMap(([appId, version]) => {
      const state = appId.startsWith(prefix) ? parseState(version) : undefined;
      return state === undefined ? [] : [[appId.slice(prefix.length), state] as const];
    }),
  );
}

/** The action that keeps the state of a load. */
export function toLoadTxn(loadId: string, { generation, status }: LoadState, nowMs: number): TxnAction {
  const version = generation * statusCount + loadStatuses.indexOf(status);
  return { appId: prefix + loadId, version, lastUpdated: nowMs };
}
