import path from 'node:path';
import { parseChecked, renderChecked } from '../runtime/files/checked-json.ts';
import { findTextFile, writeFileDurably } from '../runtime/files/durable-file.ts';
import { isCount } from './reports.ts';

/** Who has been told of a request's end, and who is still to be. It goes with the request. */
export interface Delivery {
  readonly idWebhook: string;
  readonly state: 'waiting' | 'delivered' | 'given_up';
  /** Tries so far. */
  readonly attempts: number;
  /** When to try next, Unix milliseconds. */
  readonly nextMs: number;
  /** What the last try met; absent: nothing that was wrong. */
  readonly lastError?: string;
}

/** The deliveries of a request, in its folder. */
export function deliveriesPath(folder: string): string {
  return path.join(folder, 'webhooks.json');
}

function isDelivery(value: unknown): value is Delivery {
  const delivery = value as Partial<Delivery> | null;
  return (
    typeof delivery === 'object' &&
    delivery !== null &&
    typeof delivery.idWebhook === 'string' &&
    ['waiting', 'delivered', 'given_up'].includes(String(delivery.state)) &&
    isCount(delivery.attempts) &&
    isCount(delivery.nextMs)
  );
}

/**
 * Reads the deliveries of a request; none where there is no file, or one that is damaged: then everybody is told once
 * more.
 */
export async function readDeliveries(folder: string): Promise<readonly Delivery[]> {
  const text = await findTextFile(deliveriesPath(folder));
  if (text === undefined) return [];
  try {
    const { deliveries } = parseChecked(text);
    return Array.isArray(deliveries) ? deliveries.filter(isDelivery) : [];
  } catch {
    return [];
  }
}

/** Writes the deliveries of a request, durably. */
export async function writeDeliveries(folder: string, deliveries: readonly Delivery[]): Promise<void> {
  await writeFileDurably(deliveriesPath(folder), renderChecked({ deliveries }));
}
