/**
 * Enrichment: what the addresses and User-Agents of events say of places and devices.
 *
 * In: a database of addresses, the package's own or an operator's (MMDB), and the patterns of a parser. Out: a country
 * and its regions for an address, names and versions for a User-Agent; what cannot be told is absent.
 * Invariant: no address and no User-Agent makes it throw, and none takes longer than its length allows; a database that
 * cannot be read leaves places empty and is a problem, never an error of who asks.
 * Crash: nothing rests here.
 */
import { findPackagedFile } from '../runtime/files/package-files.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { describeError } from '../runtime/errors.ts';
import { isReserved, parseAddress, openWatchedDatabase } from './geo-database.ts';
import { parsePlace, type Place } from './place.ts';
import UAParser from 'my-ua-parser';

/** Tells places and agents. */
export interface Enrichment {
  /** When the database in use was made, ISO 8601 (YYYY-MM-DD); undefined while none can be read. */
  readonly databaseDate: string | undefined;
  /** Another number for each database that was in use. */
  readonly edition: number;
  /** The place of an IPv4 or IPv6 address; undefined for a bad one, a private one, and one that is not known. */
  findPlace(address: string): Place | undefined;
  /** What a User-Agent says; an empty object where it says nothing. */
  parseAgent(userAgent: string): Agent;
  /** Reads the database again when its file has changed; one that cannot be read leaves the one before in use. */
  refresh(): Promise<void>;
  /** Takes in that rows were written without what could be told of them: a problem until the next are written with it. */
  failed(error: unknown): void;
  /** Takes in that rows were written with it. */
  passed(): void;
  /** What keeps places or agents from being told, or from being written. */
  problems(): Problem[];
  /** Lets go of the database: nothing is known from then on. */
  close(): void;
}

const ownDatabase = '@ip-location-db/geo-whois-asn-country-mmdb/geo-whois-asn-country.mmdb';

/** User-Agents that are remembered: with 2,048 characters each, 20 MB at most. */
const maxAgents = 4096;

/** Remembers what was parsed, up to a number of texts; then begins anew. */
function createAgentMemory(): (userAgent: string) => Agent {
  const known = new Map<string, Agent>();
  return (userAgent) => {
    const remembered = known.get(userAgent);
    if (remembered !== undefined) return remembered;
    const agent = parseUserAgent(userAgent);
    if (known.size >= maxAgents) known.clear();
    known.set(userAgent, agent);
    return agent;
  };
}

/** Remembers the places of records, which the database hands out again for every address of theirs. */
function createPlaceMemory(): (record: unknown) => Place | undefined {
  const known = new WeakMap<object, { readonly place: Place | undefined }>();
  return (record) => {
    if (typeof record !== 'object' || record === null) return undefined;
    const remembered = known.get(record) ?? { place: parsePlace(record) };
    known.set(record, remembered);
    return remembered.place;
  };
}

function describeGeoFault(subject: string, fault: string, dateInUse: string | undefined): Problem {
  return {
    code: 'geo_database_unreadable',
    subject,
    what:
      dateInUse === undefined
        ? `events are stored without the place of their address: ${fault}`
        : `the geo database of ${dateInUse} stays in use: ${fault}`,
    todo: "Put a good MMDB file in its place, which is read at the next flush, then run 'tributary lake enrich' to fill what was left empty.",
  };
}

function describeAgentFault(fault: string): Problem {
  return {
    code: 'agents_unparsed',
    what: `events are stored without what their User-Agent says: ${fault}`,
    todo: "Report the error, and run 'tributary lake enrich' with the version that mends it.",
  };
}

function describeFailure(fault: string): Problem {
  return {
    code: 'enrichment_failing',
    what: `events are stored without what their addresses or User-Agents say: ${fault}`,
    todo: "Remove the cause, such as too little memory, then run 'tributary lake enrich' to fill what was left empty.",
  };
}

/**
 * Opens the database of the package, or an operator's. Never fails for the database's sake: without one that can be
 * read no place is known, and `problems` says so.
 */
export async function openEnrichment({
  geoDatabase,
}: { readonly geoDatabase?: string | undefined } = {}): Promise<Enrichment> {
  const file = geoDatabase ?? findPackagedFile(ownDatabase) ?? ownDatabase;
  const watched = await openWatchedDatabase(file);
  const recallAgent = createAgentMemory();
  const recallPlace = createPlaceMemory();
  let closed = false;
  let lookUpFault: string | undefined;
  let agentFault: string | undefined;
  let failure: string | undefined;
  let edition = 0;
  const database = () => (closed ? undefined : watched.current());
  return {
    get databaseDate() {
      return database()?.date;
    },
    get edition() {
      return edition;
    },
    findPlace(address) {
      const parsed = parseAddress(address);
      // The package's database gives some private networks to a country. In an operator's own they are there on purpose.
      if (parsed === undefined || (geoDatabase === undefined && isReserved(parsed))) return undefined;
      try {
        return recallPlace(database()?.find(parsed));
      } catch (error) {
        lookUpFault = describeError(error);
        return undefined;
      }
    },
    parseAgent(userAgent) {
      try {
        return recallAgent(userAgent);
      } catch (error) {
        agentFault = describeError(error);
        return {};
      }
    },
    async refresh() {
      if (!(await watched.refresh())) return;
      lookUpFault = undefined;
      edition += 1;
    },
    failed(error) {
      failure = describeError(error);
    },
    passed() {
      failure = undefined;
    },
    problems() {
      const fault = watched.fault();
      return [
        ...(fault === undefined ? [] : [describeGeoFault(file, fault, database()?.date)]),
        ...(fault !== undefined || lookUpFault === undefined ? [] : [describeGeoFault(file, lookUpFault, undefined)]),
        ...(agentFault === undefined ? [] : [describeAgentFault(agentFault)]),
        ...(failure === undefined ? [] : [describeFailure(failure)]),
      ];
    },
    close() {
      closed = true;
    },
  };
}

/**
 * What a User-Agent says of the device and its program, under the names of the fields that it fills; what it does not
 * say is absent.
 */
export interface Agent {
  readonly idOsTitle?: string;
  readonly idOsVersionTitle?: string;
  readonly idManufacturerTitle?: string;
  readonly idDeviceModelTitle?: string;
  readonly browser?: string;
  readonly browserVersion?: string;
}

/**
 * So many characters of a User-Agent are read. Its patterns are tried one after the other, and some go back over the
 * text: at this length the worst of many thousand hostile texts took half a millisecond, a usual one takes 15 us.
 */
const maxLength = 500;

/** What stands where a version should be, in agents that give the processor instead. */
const processor = /^(?:x86|x64|i\d86|amd64|arm|aarch64|ppc|sparc|mips|riscv)/i;

function clean(text: string | undefined): string | undefined {
  const trimmed = text?.trim();
  // Control characters are no part of a name: such a text is hostile, and so is what it seems to say.
  return trimmed === undefined || trimmed === '' || /\p{Cc}/u.test(trimmed) ? undefined : trimmed;
}

function cleanVersion(text: string | undefined): string | undefined {
  const version = clean(text);
  return version === undefined || processor.test(version) ? undefined : version;
}

/**
 * Parses a User-Agent, of which the first 500 characters count. Time and memory are bounded by that. Throws for no
 * text.
 */
export function parseUserAgent(userAgent: string): Agent {
  // A character that the cut has halved would be no good text of a column.
  const text = userAgent.slice(0, maxLength).replace(/[\uD800-\uDBFF]$/, '');
  const parser = new UAParser(text);
  const [browser, os, device] = [parser.getBrowser(), parser.getOS(), parser.getDevice()];
  const agent = {
    idOsTitle: clean(os.name),
    idOsVersionTitle: cleanVersion(os.version),
    idManufacturerTitle: clean(device.vendor),
    idDeviceModelTitle: clean(device.model),
    browser: clean(browser.name),
    browserVersion: cleanVersion(browser.version),
  };
  return Object.fromEntries(Object.entries(agent).filter(([, value]) => value?.isWellFormed() === true));
}
