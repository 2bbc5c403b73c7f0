/**
 * Enrichment: places of addresses and devices of User-Agents.
 *
 * In: a database of addresses (MMDB), of the package or the operator, and a User-Agent parser. Out: country and regions
 * of an address, names and versions of a User-Agent; unknown values are absent.
 * Invariant: no address or User-Agent throws, or takes longer than its length allows. An unreadable database leaves
 * places empty and is a problem, never an error.
 * Crash: nothing is stored here.
 */
import { findPackagedFile } from '../runtime/files/package-files.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import { describeError } from '../runtime/errors.ts';
import { isReserved, parseAddress, openWatchedDatabase } from './geo-database.ts';
import { parseGeoRecord, type GeoLocation } from './geo-location.ts';
import UAParser from 'my-ua-parser';

const ownDatabase = '@ip-location-db/geo-whois-asn-country-mmdb/geo-whois-asn-country.mmdb';

/** Cached User-Agents: 20 MB with 2,048 characters each. */
const maxAgents = 4096;

function createAgentMemory(): (userAgent: string) => UserAgentInfo {
  const known = new Map<string, UserAgentInfo>();
  return (userAgent) => {
    const remembered = known.get(userAgent);
    if (remembered !== undefined) return remembered;
    const userAgentInfo = parseUserAgent(userAgent);
    if (known.size >= maxAgents) known.clear();
    known.set(userAgent, userAgentInfo);
    return userAgentInfo;
  };
}

/** Caches places by record: the database returns the same object for all addresses of a record. */
function createPlaceMemory(): (record: unknown) => GeoLocation | undefined {
  const known = new WeakMap<object, { readonly location: GeoLocation | undefined }>();
  return (record) => {
    if (typeof record !== 'object' || record === null) return undefined;
    const remembered = known.get(record) ?? { location: parseGeoRecord(record) };
    known.set(record, remembered);
    return remembered.location;
  };
}

function describeGeoFault(subject: string, error: string, dateInUse: string | undefined): Problem {
  return {
    code: 'geo_database_unreadable',
    subject,
    message:
      dateInUse === undefined
        ? `events are stored without the place of their address: ${error}`
        : `the geo database of ${dateInUse} stays in use: ${error}`,
    action:
      "Replace the MMDB file, which the next flush reads. Then run 'tributary lake enrich' to fill the missing values.",
  };
}

function describeAgentFault(fault: string): Problem {
  return {
    code: 'user_agent_parser_failed',
    message: `events are stored without device and browser: ${fault}`,
    action: "Report the error, and run 'tributary lake enrich' with the version that fixes it.",
  };
}

function describeFailure(fault: string): Problem {
  return {
    code: 'enrichment_failing',
    message: `events are stored without enrichment: ${fault}`,
    action: "Remove the cause, such as too little memory. Then run 'tributary lake enrich' to fill the missing values.",
  };
}

/** Opens the database of the package or the operator. Never fails: an unreadable one is a problem. */
export async function openEnrichment({ geoDatabase }: { readonly geoDatabase?: string | undefined } = {}) {
  const file = geoDatabase ?? findPackagedFile(ownDatabase) ?? ownDatabase;
  const watched = await openWatchedDatabase(file);
  const recallAgent = createAgentMemory();
  const recallLocation = createPlaceMemory();
  let closed = false;
  let lookUpFault: string | undefined;
  let agentFault: string | undefined;
  let failure: string | undefined;
  let edition = 0;
  const database = () => (closed ? undefined : watched.current());
  return {
    /** Build date of the database, ISO 8601 (YYYY-MM-DD); undefined without one. */
    get databaseDate() {
      return database()?.date;
    },
    get databaseVersion() {
      return edition;
    },
    /** Returns the place of an IP address; undefined for an invalid, private or unknown one. */
    findLocation(address: string) {
      const parsed = parseAddress(address);
      // The package's database assigns some private networks to a country; an operator's may do so on purpose.
      if (parsed === undefined || (geoDatabase === undefined && isReserved(parsed))) return undefined;
      try {
        return recallLocation(database()?.find(parsed));
      } catch (error) {
        lookUpFault = describeError(error);
        return undefined;
      }
    },
    parseUserAgent(userAgent: string) {
      try {
        return recallAgent(userAgent);
      } catch (error) {
        agentFault = describeError(error);
        return {};
      }
    },
    /** Reads a changed database; an unreadable one leaves the previous one in use. */
    async refresh() {
      if (!(await watched.refresh())) return;
      lookUpFault = undefined;
      edition += 1;
    },
    /** Records that rows were written without enrichment: a problem until `passed`. */
    failed(error: unknown) {
      failure = describeError(error);
    },
    passed() {
      failure = undefined;
    },
    problems() {
      const databaseError = watched.fault();
      return [
        ...(databaseError === undefined ? [] : [describeGeoFault(file, databaseError, database()?.date)]),
        ...(databaseError !== undefined || lookUpFault === undefined
          ? []
          : [describeGeoFault(file, lookUpFault, undefined)]),
        ...(agentFault === undefined ? [] : [describeAgentFault(agentFault)]),
        ...(failure === undefined ? [] : [describeFailure(failure)]),
      ];
    },
    close() {
      closed = true;
    },
  };
}

export type Enrichment = Awaited<ReturnType<typeof openEnrichment>>;

/** Device and program of a User-Agent, by field; unknown values are absent. */
export interface UserAgentInfo {
  readonly idOsTitle?: string;
  readonly idOsVersionTitle?: string;
  readonly idManufacturerTitle?: string;
  readonly idDeviceModelTitle?: string;
  readonly browser?: string;
  readonly browserVersion?: string;
}

/** Characters of a User-Agent that are parsed. The worst hostile text took 0.5 ms, a usual one 15 us. */
const maxLength = 500;

/** Some agents have the processor as their version. */
const processor = /^(?:x86|x64|i\d86|amd64|arm|aarch64|ppc|sparc|mips|riscv)/i;

function clean(text: string | undefined): string | undefined {
  const trimmed = text?.trim();
  // A text with control characters is hostile.
  return trimmed === undefined || trimmed === '' || /\p{Cc}/u.test(trimmed) ? undefined : trimmed;
}

function cleanVersion(text: string | undefined): string | undefined {
  const version = clean(text);
  return version === undefined || processor.test(version) ? undefined : version;
}

/** Parses the first 500 characters of a User-Agent, which bounds time and memory. Never throws. */
export function parseUserAgent(userAgent: string): UserAgentInfo {
  // Half a surrogate pair is not a valid text of a column.
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
