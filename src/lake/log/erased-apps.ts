import type { LakeState } from './lake-state.ts';

/**
 * The apps that erasures took rows of, in the state of a log: an older version is refused to those who would read such
 * rows, and to nobody else, so that the erasures of one account show to no other. Pure.
 */

type Erasures = Pick<LakeState, 'forgetBefore' | 'erasing' | 'erasedBefore'>;

/** Apps that are told apart; of more, the versions of the earliest erasures count for all apps. */
const maxApps = 256;
const all = 'all';

function bound(before: Readonly<Record<string, number>>): Readonly<Record<string, number>> {
  const entries = Object.entries(before).toSorted(([, a], [, b]) => b - a);
  const merged = entries.slice(maxApps);
  return Object.fromEntries(
    merged.length === 0
      ? entries
      : [...entries.slice(0, maxApps), [all, Math.max(before[all] ?? 0, ...merged.map(([, version]) => version))]],
  );
}

/** Versions of the service before 0.4 did not say of which apps rows were erased: then of any. */
function erasedSoFar({ erasedBefore, forgetBefore }: Erasures): Readonly<Record<string, number>> {
  return erasedBefore ?? (forgetBefore === undefined ? {} : { [all]: forgetBefore });
}

/**
 * The members of the next state. `erasedApps`: the apps that an erasure's commit takes rows of; undefined: any of them.
 * `forgetBefore`: the version that the last commit of the erasure names.
 */
export function moveErasures(
  before: Erasures,
  isErasure: boolean,
  { erasedApps, forgetBefore }: { readonly erasedApps?: readonly number[]; readonly forgetBefore?: number },
): Pick<LakeState, 'erasing' | 'erasedBefore'> {
  const apps = [...new Set([...(before.erasing === true ? [] : (before.erasing ?? [])), ...(erasedApps ?? [])])];
  const isAny = before.erasing === true || (isErasure && erasedApps === undefined) || apps.length > maxApps;
  const known = erasedSoFar(before);
  const erasedBefore =
    forgetBefore === undefined
      ? known
      : bound({ ...known, ...Object.fromEntries((isAny ? [all] : apps).map((app) => [app, forgetBefore])) });
  const isUnfinished = forgetBefore === undefined && (isErasure || before.erasing !== undefined);
  return {
    ...(isUnfinished ? { erasing: isAny ? true : apps } : {}),
    ...(Object.keys(erasedBefore).length === 0 ? {} : { erasedBefore }),
  };
}

/** What erasures leave of older versions to a reader of some apps; undefined: of all. */
export function findErased(
  state: Erasures,
  idApps: readonly number[] | undefined,
): { readonly before: number; readonly isErasing: boolean } {
  const { erasing } = state;
  const known = erasedSoFar(state);
  const names = idApps === undefined ? Object.keys(known) : [all, ...idApps];
  return {
    before: names.reduce<number>((newest, name) => Math.max(newest, known[name] ?? 0), 0),
    isErasing: erasing === true || (erasing ?? []).some((app) => idApps === undefined || idApps.includes(app)),
  };
}
