// Sign in with OpenID Connect: the authorization code flow with PKCE. The browser goes to the provider and
// comes back with a code; whoever else sees the code cannot use it, because the verifier stays in this tab.
import { identity } from "/stream.js";

const PENDING = "sluicegate.signing-in";
const BYTES = 32;

export async function offered() {
  const response = await fetch("/sign-in.json");
  const options = response.ok ? await response.json() : {};
  return options.issuer ? options : null;
}

async function discovered(issuer) {
  const response = await fetch(`${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`);
  if (!response.ok) throw new Error(`${issuer} does not say how to sign in: status ${response.status}`);
  const found = await response.json();
  if (found.issuer !== issuer) throw new Error(`${issuer} calls itself ${found.issuer}: correct the console's setting`);
  return found;
}

const encoded = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

const random = () => encoded(crypto.getRandomValues(new Uint8Array(BYTES)));

const callback = (options) => location.origin + options.callback;

export async function begin(options) {
  const provider = await discovered(options.issuer);
  const [verifier, state, nonce] = [random(), random(), random()];
  const back = location.pathname === options.callback ? "/" : location.pathname + location.search;
  sessionStorage.setItem(PENDING, JSON.stringify({ verifier, state, nonce, back }));
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  const asks = { response_type: "code", client_id: options.clientId, redirect_uri: callback(options), scope: options.scope, state, nonce,
    code_challenge: encoded(new Uint8Array(digest)), code_challenge_method: "S256" };
  location.assign(`${provider.authorization_endpoint}?${new URLSearchParams(asks)}`);
}

// Take the provider's answer, and go back to where the person wanted to be. Raises an error for any other answer.
export async function finish(options) {
  const answer = new URLSearchParams(location.search);
  const pending = JSON.parse(sessionStorage.getItem(PENDING) || "null");
  sessionStorage.removeItem(PENDING);
  history.replaceState(null, "", pending?.back || "/");
  if (!pending || answer.get("state") !== pending.state) throw new Error("The answer of the provider belongs to no sign-in of this tab. Sign in again.");
  if (answer.get("error")) throw new Error(`${options.issuer} refused: ${answer.get("error_description") || answer.get("error")}`);
  if (answer.get("iss") && answer.get("iss") !== options.issuer) throw new Error(`The answer is of ${answer.get("iss")}, not of ${options.issuer}.`);
  const provider = await discovered(options.issuer);
  const response = await fetch(provider.token_endpoint, { method: "POST", body: new URLSearchParams({ grant_type: "authorization_code",
    code: answer.get("code") || "", redirect_uri: callback(options), client_id: options.clientId, code_verifier: pending.verifier }) });
  const tokens = await response.json();
  if (!response.ok) throw new Error(`${options.issuer} gave no token: ${tokens.error_description || tokens.error}`);
  if (claims(tokens.id_token).nonce !== pending.nonce) throw new Error("The token belongs to another sign-in. Sign in again.");
  identity.set(tokens.id_token, "");
}

// The cluster checks the signature; the page reads the token only to see that it is the answer to its question.
function claims(token) {
  const [, payload] = token.split(".");
  return JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(payload.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0))));
}
