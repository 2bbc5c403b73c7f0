import type { Arguments } from '../api/arguments.ts';
import { badRequest, type Refusal } from '../api/envelope.ts';
import { single } from '../api/methods-routes.ts';

/** Which part of a list is wanted. */
export interface ListPage {
  /** In lower case; empty: everything. */
  readonly search: string;
  readonly offset: number;
  readonly limit: number;
}

const fallbackLimit = 100;
const mostLimit = 1000;

/** Reads search, offset and limit, or says what is wrong with them. */
export function parsePage(given: Arguments): ListPage | Refusal {
  const read = (name: string, fallback: number): number => {
    if (!given.has(name)) return fallback;
    const text = single(given, name) ?? '';
    return /^\d{1,7}$/.test(text) ? Number(text) : Number.NaN;
  };
  const [offset, limit] = [read('offset', 0), read('limit', fallbackLimit)];
  if (Number.isNaN(offset)) return badRequest('Argument offset is how many are left out before the first');
  if (!(limit >= 1 && limit <= mostLimit)) return badRequest(`Argument limit must be from 1 to ${mostLimit}`);
  return { search: (single(given, 'search') ?? '').toLowerCase(), offset, limit };
}

/** Takes the part of a list whose texts have what is searched for; `total`: how many of them there are. */
export function takePage<T>(
  list: readonly T[],
  { search, offset, limit }: ListPage,
  textsOf: (item: T) => readonly (string | undefined)[],
): { readonly items: readonly T[]; readonly total: number } {
  const found =
    search === '' ? list : list.filter((item) => textsOf(item).some((text) => text?.toLowerCase().includes(search)));
  return { items: found.slice(offset, offset + limit), total: found.length };
}
