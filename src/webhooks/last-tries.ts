/** What came of a try to tell a webhook. */
export interface Try {
  /** Unix milliseconds. */
  readonly atMs: number;
  /** Absent: the message was taken. It names no address that a name leads to: that is the network's own affair. */
  readonly problem?: string;
}

/** The newest try of each webhook in this process, for who has added it. */
export interface LastTries {
  take(idWebhook: string, last: Try): void;
  find(idWebhook: string): Try | undefined;
}

/** More than there are webhooks; of more the oldest go. */
const most = 10_000;

/** Creates it, knowing no try. */
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
