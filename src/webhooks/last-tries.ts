/** An attempt to notify a webhook. */
export interface Try {
  /** Unix ms. */
  readonly atMs: number;
  /** Absent if it was delivered. It has no resolved address, which is internal to the network. */
  readonly problem?: string;
}

/** The last attempt of each webhook in this process. */
export interface LastTries {
  take(idWebhook: string, last: Try): void;
  find(idWebhook: string): Try | undefined;
}

/** More than there are webhooks; the oldest are dropped. */
const most = 10_000;

export function createLastTries(): LastTries {
  const tries = new Map<string, Try>();
  return {
    take(idWebhook, last) {
      tries.delete(idWebhook);
      tries.set(idWebhook, last);
      const [oldest] = tries.size > most ? tries.keys() : [];
      if (oldest !== undefined) tries.delete(oldest);
    },
    find: (idWebhook) => tries.get(idWebhook),
  };
}
