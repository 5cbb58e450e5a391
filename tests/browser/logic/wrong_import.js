import { nothing } from "../../../components/kit/base.js"
export const a = nothing
