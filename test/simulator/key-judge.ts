import { isSameRequest, keyWindowMs, type Ledger, type SentMessage, type SentRequest } from './ledger.ts';

/**
 * Checks the promise of a key against the ledger. It concerns the requests under one key that were received within 24
 * hours of each other. The first one in the stream is stored once and completely. A repeat of it is dropped. All events
 * of every other one are kept as failed and never stored. The time of receipt counts, not that of the flush.
 */
export interface KeyJudge {
  /**
   * Returns the first violation in the stored names at any time: duplicates, incomplete requests, or two requests of
   * one key.
   */
  findWrong(stored: readonly string[]): string | undefined;
  /**
   * Returns the first violation at the end. `kept`: how often an event failed. `history`: all payloads that the broker
   * has stored; undefined if it has lost some.
   */
  findWrongAtEnd(
    stored: readonly string[],
    kept: (name: string) => number,
    history: readonly string[] | undefined,
  ): string | undefined;
}

/**
 * Returns how often a request may be stored: once, and once more for each receipt a day after the previously stored
 * one.
 */
function countWindows(requests: readonly SentRequest[]): number {
  let [windows, beginsMs] = [0, -Infinity];
  for (const { receivedAtMs } of requests.toSorted((a, b) => a.receivedAtMs - b.receivedAtMs)) {
    if (receivedAtMs - beginsMs <= keyWindowMs) continue;
    windows += 1;
    beginsMs = receivedAtMs;
  }
  return windows;
}

function countNames(names: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

/** Returns the distinct requests of each key. */
function differentRequests(requests: readonly SentRequest[]): SentRequest[] {
  const different: SentRequest[] = [];
  for (const request of requests)
    if (!different.some((other) => isSameRequest(request, other))) different.push(request);
  return different;
}

function requestsByKey(messages: readonly SentMessage[]): Map<string, SentRequest[]> {
  const byKey = new Map<string, SentRequest[]>();
  for (const request of messages.flatMap(({ requests }) => requests)) {
    if (request.key !== undefined) byKey.set(request.key, [...(byKey.get(request.key) ?? []), request]);
  }
  return byKey;
}

/** Checks keys whose requests were all received within the window, so that the first one is known. */
function findWrongOfWindow(
  key: string,
  requests: readonly SentRequest[],
  counts: ReadonlyMap<string, number>,
  kept: (name: string) => number,
): string | undefined {
  const [first] = requests;
  for (const name of new Set(requests.flatMap(({ names }) => names))) {
    const times = counts.get(name) ?? 0;
    const wantedTimes = first?.names.includes(name) === true ? 1 : 0;
    if (times !== wantedTimes)
      return `event ${name} of key ${key} is stored ${times} times, and has to be ${wantedTimes} times`;
    const wantedKept = requests.filter(
      (request) => first !== undefined && !isSameRequest(request, first) && request.names.includes(name),
    ).length;
    if (kept(name) !== wantedKept)
      return `event ${name} of key ${key}, used again for another request, is kept ${kept(name)} times, and has to be ${wantedKept} times`;
  }
  return undefined;
}

/** Creates the check of a ledger's keys. */
export function createKeyJudge(ledger: Ledger): KeyJudge {
  function findWrong(stored: readonly string[]): string | undefined {
    const counts = countNames(stored);
    for (const [key, requests] of requestsByKey(ledger.sent)) {
      const windows = countWindows(requests);
      const different = differentRequests(requests);
      const often = requests.flatMap(({ names }) => names).find((name) => (counts.get(name) ?? 0) > windows);
      if (often !== undefined) return `event ${often} of key ${key} is stored ${counts.get(often)} times`;
      // A request is recognised by an event that no other one of its key has.
      const seen = different.filter(({ names }) =>
        names.some(
          (name) =>
            counts.has(name) && different.every((other) => other.names === names || !other.names.includes(name)),
        ),
      );
      if (seen.length > windows)
        return `requests of key ${key} are stored that are not the same: ${seen.map(({ names }) => names.join()).join(' and ')}`;
      const torn = seen.find(({ names }) => names.some((name) => !counts.has(name)));
      if (torn !== undefined) return `a request of key ${key} is torn: ${torn.names.join()}`;
    }
    return undefined;
  }

  return {
    findWrong,
    findWrongAtEnd(stored, kept, history) {
      const counts = countNames(stored);
      const inStream =
        history === undefined
          ? undefined
          : requestsByKey(history.flatMap((payload) => ledger.find(Buffer.from(payload)).slice(0, 1)));
      for (const [key, requests] of inStream ?? []) {
        const wrong = countWindows(requests) === 1 ? findWrongOfWindow(key, requests, counts, kept) : undefined;
        if (wrong !== undefined) return wrong;
      }
      for (const { outcome, isLost, requests } of ledger.sent) {
        if (outcome !== 'acknowledged' || isLost) continue;
        const gone = requests.find(
          ({ key, names }) =>
            key !== undefined && !names.every((name) => counts.has(name)) && !names.every((name) => kept(name) > 0),
        );
        if (gone !== undefined)
          return `a request of key ${gone.key} was acknowledged, and is neither stored nor kept: ${gone.names.join()}`;
      }
      return findWrong(stored);
    },
  };
}
